"""The certification gate from outside: run it in a process of its own, and use what it has found."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from mashbox.catalog.fingerprint import weights_sha256
from mashbox.catalog.gguf import read_model
from mashbox.config import PREFILL_CHUNK, ModelConfig, cache_dir, child_environment
from mashbox.engine.certificate import Certificate, Check, Subject, find, prepare, write
from mashbox.engine.certify.messages import Doing, Ended, Found, GateConfig, Loaded, Message, Refused
from mashbox.engine.supervisor import HUGE_PAGES
from mashbox.errors import ConfigError

_BUILD = "from mashbox.engine.llama import build_name; print(build_name())"
BUILD_S = 60.0
"""For the library to be loaded and say what it is; without an answer there is no certificate to be used."""
_MESSAGES = msgspec.json.Decoder(Message)


@dataclass(frozen=True, slots=True)
class GateResult:
    """What the gate told. `ended` holds a certificate's values."""

    build: str
    checks: tuple[Check, ...]
    ended: Ended


def run_gate(config: GateConfig, show: Callable[[Doing | Found], None]) -> GateResult:
    """Run all checks and show each as it comes. Raises ConfigError when the model cannot be loaded.

    A process that dies by itself has not passed: the library failed at what was being done.
    """
    reader, writer = os.pipe()
    command = [sys.executable, "-m", "mashbox.engine.certify", str(writer)]
    environment = {**HUGE_PAGES, **child_environment()}
    with os.fdopen(reader, "rb") as lines:
        try:
            process = subprocess.Popen(
                [*command, msgspec.json.encode(config).decode()],
                stdin=subprocess.DEVNULL,
                pass_fds=[writer],
                env=environment,
            )
        finally:
            os.close(writer)
        try:
            return _follow((_MESSAGES.decode(line) for line in lines), show, process.wait)
        finally:
            process.kill()
            process.wait()


def _follow(
    messages: Iterator[Message], show: Callable[[Doing | Found], None], wait: Callable[[], int]
) -> GateResult:
    build: str | None = None
    doing = ""
    checks: list[Check] = []
    for message in messages:
        match message:
            case Refused():
                raise ConfigError(message.message)
            case Loaded():
                build = message.build
            case Doing():
                doing = message.what
                show(message)
            case Found():
                checks.append(message.check)
                show(message)
            case Ended():
                assert build is not None
                return GateResult(build, tuple(checks), message)
    code = wait()
    if -code in (signal.SIGKILL, signal.SIGTERM):
        raise ConfigError(f"The checks were ended from outside (signal {-code}); is there enough memory?")
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    if build is None:
        raise ConfigError(f"The checks ended while they loaded the model ({how}).")
    checks.append(Check(doing, "failed", f"the process ended ({how})"))
    return GateResult(build, tuple(checks), Ended(False, 1, PREFILL_CHUNK))


def certify(
    model: ModelConfig, paths: Sequence[Path], quick: bool, show: Callable[[Doing | Found], None]
) -> tuple[Certificate, Path | None]:
    """Run the gate and keep what it found; the certificate, and its file. A quick run leaves none.

    Raises ConfigError; what would be in its way at the end, before the checks.
    """
    weights = _weights(paths)
    if not quick:
        _kept(prepare)
    floats = read_model(paths).float_matrices
    result = run_gate(GateConfig(model, quick=quick, float_matrices=floats), show)
    if _weights(paths) != weights:
        raise ConfigError("The model's file was replaced while it was checked.")
    certificate = Certificate(
        subject=Subject.of(result.build, weights, model),
        model=paths[0].name,
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        context=model.context,
        passed=result.ended.passed,
        decode_rows=result.ended.decode_rows,
        prefill_rows=result.ended.prefill_rows,
        checks=result.checks,
    )
    return certificate, None if quick else _kept(lambda: write(certificate))


def _kept(write: Callable[[], Path]) -> Path:
    try:
        return write()
    except OSError as error:
        raise ConfigError(f"Cannot write the certificate: {error.strerror}.") from error


def exact_model(model: ModelConfig, paths: Sequence[Path]) -> tuple[ModelConfig, bool]:
    """A model in exact mode, and whether a passed certificate lets it use more than the narrowest calls."""
    found = _certificate(model, paths)
    narrow = replace(model, exact=True, flash_attn="off", decode_rows=1, prefill_rows=PREFILL_CHUNK)
    if found is None or not found.passed:
        return narrow, False
    return replace(narrow, decode_rows=found.decode_rows, prefill_rows=found.prefill_rows), True


def _certificate(model: ModelConfig, paths: Sequence[Path]) -> Certificate | None:
    """Without any certificate there is no need to read the weights, which may take a while."""
    if not any((cache_dir() / "certificates").glob("*.json")):
        return None
    build = _read_build()
    return None if build is None else find(Subject.of(build, _weights(paths), model), model.context)


def _weights(paths: Sequence[Path]) -> str:
    try:
        digest = weights_sha256(paths)
    except OSError as error:
        raise ConfigError(f"Cannot read {error.filename}: {error.strerror}.") from error
    assert digest is not None, "nobody stops it"
    return digest


def _read_build() -> str | None:
    """`ModelFacts.build` of the installed library, from a process of its own: it is native code."""
    command = [sys.executable, "-c", _BUILD]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=BUILD_S, env=child_environment()
        )
    except subprocess.TimeoutExpired:
        return None
    return done.stdout.removesuffix("\n") if done.returncode == 0 else None
