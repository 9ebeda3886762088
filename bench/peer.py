"""The other side: llama.cpp's llama-server, built from the source our own bindings are built from."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from bench.config import Setup
from bench.errors import BenchError
from bench.process import HOST, Launch, free_port
from mashbox.config import cache_dir

NAME = "llama-server"
BINDINGS = "llama-cpp-python"
BUILD_FLAGS = (
    "-DCMAKE_BUILD_TYPE=Release",
    "-DBUILD_SHARED_LIBS=ON",
    "-DGGML_NATIVE=ON",
    "-DGGML_OPENMP=ON",
    "-DLLAMA_BUILD_COMMON=ON",
    "-DLLAMA_BUILD_TOOLS=ON",
    "-DLLAMA_BUILD_SERVER=ON",
    "-DLLAMA_BUILD_UI=OFF",
    "-DLLAMA_USE_PREBUILT_UI=OFF",
    "-DLLAMA_OPENSSL=OFF",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
    "-DLLAMA_BUILD_APP=OFF",
)


def bench_dir() -> Path:
    """Where the peer's source and build and the benchmark's model are kept between runs."""
    return cache_dir() / "bench"


def launch(setup: Setup, logs: Path, more_flags: Sequence[str] = (), name: str = NAME) -> Launch:
    """How to start llama-server, building it first if that has not been done yet."""
    port = free_port()
    command = [str(ensure_built()), "-m", str(setup.model), "--host", HOST, "--port", str(port)]
    command += ["-c", str(setup.context * setup.slots), "-np", str(setup.slots)]
    command += ["-t", str(setup.threads), "-tb", str(setup.threads), "--no-ui"]
    if setup.chat_template is not None:
        command += ["--chat-template-file", str(setup.chat_template)]
    return Launch(name, [*command, *more_flags], port, logs / f"{name}.log", {})


def ensure_built() -> Path:
    """The llama-server binary; downloads and builds it (some minutes) when it is not there.

    Raises BenchError when a tool is missing or a step fails.
    """
    release = version(BINDINGS)
    home = bench_dir() / f"llama.cpp-of-{release}"
    binary, stamp = home / "build" / "bin" / NAME, home / "built-with"
    # Our own build takes CMAKE_ARGS, too.
    flags = [*BUILD_FLAGS, *shlex.split(os.environ.get("CMAKE_ARGS", ""))]
    if binary.exists() and stamp.exists() and stamp.read_text() == shlex.join(flags):
        return binary
    source = home / "source"
    if not source.exists():
        _fetch_source(release, source)
    _build(source, home / "build", flags)
    stamp.write_text(shlex.join(flags))
    return binary


def _fetch_source(release: str, target: Path) -> None:
    """Download the sdist of a release with pip and keep llama.cpp's tree from it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        package, inner = f"{BINDINGS}=={release}", f"llama_cpp_python-{release}/vendor/llama.cpp/"
        download = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", BINDINGS]
        _run(f"Downloading the source of {package}", [*download, "--dest", scratch, package])
        (archive,) = Path(scratch).glob("*.tar.gz")
        with tarfile.open(archive) as tar:
            members = [member for member in tar if member.name.startswith(inner)]
            tar.extractall(scratch, members, filter="data")
        # The rename comes last, so a source directory that exists is a complete one.
        (Path(scratch) / inner).rename(target)


def _build(source: Path, build: Path, flags: Sequence[str]) -> None:
    cmake = shutil.which("cmake")
    if cmake is None:
        raise BenchError("Building llama-server needs cmake and a C++ compiler; please install them.")
    _run("Configuring llama-server", [cmake, "-S", str(source), "-B", str(build), *flags])
    jobs = str(os.cpu_count() or 1)
    _run(
        "Building llama-server (once; some minutes)",
        [cmake, "--build", str(build), "--target", "llama-server", "--parallel", jobs],
    )


def _run(title: str, command: Sequence[str]) -> None:
    """Run a build step at low priority, its output shown as it comes."""
    print(f"{title} ...", flush=True)
    nice = [found, "-n", "10"] if (found := shutil.which("nice")) else []
    status = subprocess.run([*nice, *command], check=False).returncode
    if status != 0:
        raise BenchError(f"{title} failed with status {status}; its output is above.")
