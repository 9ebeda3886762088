"""Builds llama.cpp for this machine's CPU once, and keeps the wheel in the cache for every clone.

    PYTHONPATH=src python scripts/build_llama.py          build unless it is there, print the wheel's path
    PYTHONPATH=src python scripts/build_llama.py --key    print the key the wheel is kept under

Only the standard library is used, because this runs before anything is installed. CMAKE_ARGS from
the environment is passed on after our own flags, for example CMAKE_ARGS=-DGGML_CUDA=on.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import math
import os
import platform
import re
import select
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, TextIO

from mashbox.config import cache_dir

ROOT = Path(__file__).resolve().parent.parent
TRIM = ROOT / "scripts" / "llama.cmake"
FLAGS = ("-DLLAVA_BUILD=OFF", "-DGGML_NATIVE=ON", "-DLLAMA_ALL_WARNINGS=OFF")
COMPILE_ENVIRONMENT = ("CMAKE_ARGS", "CC", "CXX", "CFLAGS", "CXXFLAGS")
CPU_FIELDS = ("vendor_id", "cpu family", "model", "flags", "CPU implementer", "CPU part", "Features")
CPU_MINUTES = 4.5
"""What one build took on a server CPU with AVX-512, all cores added up."""

STEP = re.compile(r"\s*\[\s*(\d+)(?:/(\d+)|%)\]")
"""Ninja's [12/83], or [ 14%] where scikit-build-core has to fall back to make."""

ERROR = re.compile(r"(^|\s)error\b|FAILED:", re.IGNORECASE)

STAGES = (
    ("Downloading llama", "fetching the source"),
    ("Configuring CMake", "configuring"),
    ("Building project", "compiling"),
    ("Installing project", "packing"),
)


class SetupError(Exception):
    """The machine lacks something or the build failed; the text is for the user."""


class Progress:
    """Shows how far the build is: a bar on a terminal, otherwise a line every 10 % or 20 s."""

    def __init__(self, screen: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._screen = screen
        self._terminal = screen.isatty()
        self._clock = clock
        self._started = self._shown_at = clock()
        self._stage = "preparing"
        self._percent = self._shown_percent = 0

    def read(self, line: str) -> None:
        """Takes one line of the build's output."""
        self._stage = next((stage for marker, stage in STAGES if marker in line), self._stage)
        # While configuring, CMake compiles small tests that count their own steps.
        if self._stage == "compiling" and (step := STEP.match(line)):
            done, total = int(step[1]), int(step[2] or 100)
            self._percent = 100 * done // total

    def show(self) -> None:
        """Draws, when there is something new to say; to be called about once a second."""
        now = self._clock()
        if self._terminal:
            self._draw("\r\x1b[K", self._bar(), "")
        elif self._percent // 10 > self._shown_percent // 10 or now - self._shown_at >= 20:
            self._draw("  ", f"{self._percent} %", "\n")
        else:
            return
        self._shown_at, self._shown_percent = now, self._percent

    def end(self) -> None:
        """Clears the bar."""
        if self._terminal:
            self._screen.write("\r\x1b[K")

    def _draw(self, before: str, amount: str, after: str) -> None:
        seconds = int(self._clock() - self._started)
        self._screen.write(f"{before}{amount}  {seconds // 60}:{seconds % 60:02}  {self._stage}{after}")
        self._screen.flush()

    def _bar(self) -> str:
        filled = self._percent * 30 // 100
        return f"  [{'#' * filled}{'.' * (30 - filled)}] {self._percent:3} %"


def requirement() -> str:
    """The pinned bindings from pyproject.toml, for example llama-cpp-python==0.3.36."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pins: list[str] = project["optional-dependencies"]["llama"]
    return next(pin for pin in pins if pin.startswith("llama-cpp-python=="))


def cpu() -> str:
    """What -march=native depends on; the same text on machines that can share a build."""
    cpuinfo = Path("/proc/cpuinfo")
    if not cpuinfo.exists():
        return platform.processor()
    lines = {" ".join(line.split()) for line in cpuinfo.read_text().splitlines()}
    return "\n".join(sorted(line for line in lines if line.split(" :")[0] in CPU_FIELDS))


def build_key() -> str:
    """Names one build: bindings, flags, environment, platform and CPU, but not the Python version."""
    parts = [
        requirement(),
        *FLAGS,
        TRIM.read_text(),
        *(f"{name}={os.environ.get(name, '')}" for name in COMPILE_ENVIRONMENT),
        sysconfig.get_platform(),
        *platform.libc_ver(),
        cpu(),
    ]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def check_compilers() -> None:
    """Raises SetupError with what to install."""
    wanted = {"C": (os.environ.get("CC"), "cc", "gcc", "clang")}
    wanted["C++"] = (os.environ.get("CXX"), "c++", "g++", "clang++")
    for language, names in wanted.items():
        if not any(shutil.which(shlex.split(name)[0]) for name in names if name):
            raise SetupError(
                f"No {language} compiler found; mashbox compiles llama.cpp for your CPU.\n"
                "On Debian or Ubuntu: apt-get install gcc g++"
            )


def cached_wheel(folder: Path) -> Path | None:
    return next(folder.glob("*.whl"), None)


@contextmanager
def only_one(wheels: Path) -> Iterator[None]:
    """Holds the cache's build lock, waiting for another set-up if there is one."""
    with (wheels / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("Another set-up is building llama.cpp; waiting for it.", file=sys.stderr)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def announce() -> None:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    minutes = math.ceil(CPU_MINUTES / cores)
    print(
        f"Building llama.cpp for this CPU: once, about {minutes} minute{'s'[: minutes != 1]} "
        f"on {cores} core{'s'[: cores != 1]}.",
        file=sys.stderr,
    )


def run_pip(folder: Path, log: Path) -> int:
    """Compiles inside `folder`, the wheel to `folder`/wheel, all output to `log`; returns pip's exit code."""
    # pip's own cache keeps wheels without looking at the flags or the CPU they were built with.
    command = [sys.executable, "-m", "pip", "wheel", "--verbose", "--no-deps", "--no-cache-dir"]
    command += ["--no-binary", "llama-cpp-python", "--wheel-dir", str(folder / "wheel"), requirement()]
    own = [*FLAGS, f"-DCMAKE_PROJECT_llama.cpp_INCLUDE={TRIM}"]
    arguments = f"{shlex.join(own)} {os.environ.get('CMAKE_ARGS', '')}".strip()
    environment = {**os.environ, "CMAKE_ARGS": arguments, "TMPDIR": str(folder)}
    environment.pop("PYTHONPATH", None)
    with log.open("wb") as kept, own_group(command, environment) as process:
        assert process.stdout is not None
        progress = Progress(sys.stderr)
        follow(process.stdout.fileno(), kept, progress)
        progress.end()
    return process.returncode


@contextmanager
def own_group(command: list[str], environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """Runs a command whose compilers end with it when we are interrupted."""
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    with process:
        try:
            yield process
        except BaseException:
            os.killpg(process.pid, signal.SIGTERM)
            process.communicate()  # ends when the last compiler has ended, not only pip
            raise


def follow(pipe: int, keep: BinaryIO, progress: Progress) -> None:
    """Copies a pipe to its end into `keep` and shows the progress it tells of."""
    rest = b""
    while True:
        if select.select([pipe], [], [], 1.0)[0]:
            data = os.read(pipe, 1 << 16)
            if not data:
                return
            keep.write(data)
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                progress.read(line.decode(errors="replace"))
        progress.show()


def failure(log: Path) -> str:
    """Names the log and shows its first error, or else its end; long command lines are cut short."""
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    start = next((at for at, line in enumerate(lines) if ERROR.search(line)), -20)
    shown = [f"  {line.strip()[:160]}" for line in lines[start:][:20]]
    return "\n".join(["", *shown, f"Building llama.cpp failed; the log is {log}"])


def build(folder: Path) -> Path:
    """Compiles one wheel into `folder`, which appears only when the wheel is whole."""
    check_compilers()
    for leftover in folder.parent.glob("building-*"):
        shutil.rmtree(leftover)
    announce()
    log = folder.with_suffix(".log")
    with tempfile.TemporaryDirectory(prefix="building-", dir=folder.parent) as temporary:
        if run_pip(Path(temporary), log) != 0:
            raise SetupError(failure(log))
        (Path(temporary) / "wheel").rename(folder)
    return next(folder.glob("*.whl"))


def wheel() -> Path:
    """The wheel for this machine, built when the cache has none."""
    folder = cache_dir().absolute() / "wheels" / build_key()
    if found := cached_wheel(folder):
        return found
    folder.parent.mkdir(parents=True, exist_ok=True)
    with only_one(folder.parent):
        return cached_wheel(folder) or build(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description="Build llama.cpp for this CPU, once.")
    parser.add_argument("--key", action="store_true", help="print the build's key and stop")
    try:
        print(build_key() if parser.parse_args().key else wheel())
    except SetupError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit("\nStopped; the next set-up starts the build again.")


if __name__ == "__main__":
    main()
