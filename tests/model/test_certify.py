"""`mashbox certify` and `--exact` as a user meets them, with a real model where it is quick enough."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner, Result

from mashbox import certification, cli
from mashbox.config import ModelConfig
from mashbox.engine.certificate import Certificate
from mashbox.engine.certify.gate import Gate
from mashbox.engine.certify.messages import GATE_SLOTS, Ended, Found, GateConfig, Message
from mashbox.engine.llama import LlamaBackend
from tests.model.conftest import run_box
from tests.model.test_cli import mashbox, refusal


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache directory without certificates."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def model(tiny_model: Callable[[str], Path]) -> Path:
    """Its rows of decode calls are not all alike on every CPU."""
    return tiny_model("q4_k")


@pytest.fixture(scope="module")
def certified(model: Path, cache: Path) -> subprocess.CompletedProcess[str]:
    """The tiny model after the gate, with little context."""
    return mashbox(
        "certify", str(model), "--threads", "1", "--ctx", "512", COLUMNS="200", MASHBOX_CACHE=str(cache)
    )


def test_the_table_and_the_certificate_say_the_same(
    certified: subprocess.CompletedProcess[str], cache: Path
) -> None:
    assert certified.returncode == 0, certified.stdout + certified.stderr
    (file,) = (cache / "certificates").iterdir()
    certificate = msgspec.json.decode(file.read_bytes(), type=Certificate)
    assert (certificate.passed, certificate.context) == (True, 512)
    rows = [" ".join(line.split()) for line in certified.stdout.splitlines()]
    for check in certificate.checks:
        assert f"{check.name} {check.outcome} {check.figure}" in rows
    assert rows[-2].endswith(
        f"up to {certificate.decode_rows} rows are decoded and {certificate.prefill_rows} tokens prefilled "
        "together."
    )
    assert rows[-1] == f"Certificate: {file}"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--ctx", "512", "--exact"), "passed"),
        (("--ctx", "512"), "passed"),
        (("--ctx", "513"), "none"),
        (("--ctx", "512", "--cache-type-k", "bf16"), "none"),
    ],
)
def test_health_says_so_for_these_settings_only(
    certified: subprocess.CompletedProcess[str],
    model: Path,
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...],
    expected: str,
) -> None:
    monkeypatch.setenv("MASHBOX_CACHE", str(cache))
    assert certified.returncode == 0
    with run_box(str(model), "--slots", "2", *options) as box:
        report = box.until(lambda report: bool(report["component_set_sha"]))
        assert report["certification"] == expected
        assert box.complete("The sea is", max_tokens=4)["usage"]["completion_tokens"] == 4


def test_exact_mode_works_without_a_certificate(
    demo_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MASHBOX_CACHE", str(tmp_path))
    with run_box(str(demo_file), "--ctx", "512", "--slots", "2", "--exact") as box:
        assert box.until(lambda report: bool(report["component_set_sha"]))["certification"] == "none"
        assert box.complete("The sea is", max_tokens=4)["usage"]["completion_tokens"] == 4


@pytest.mark.parametrize("command", ["run", "certify"])
def test_exact_mode_needs_values_that_do_without_flash_attention(demo_file: Path, command: str) -> None:
    options = ("--exact", "--port", "0") if command == "run" else ()
    line = refusal(command, str(demo_file), *options, "--cache-type-v", "q8_0")
    assert "--cache-type-v" in line


def test_exact_mode_refuses_flash_attention(demo_file: Path) -> None:
    assert "--flash-attn on" in refusal("run", str(demo_file), "--exact", "--flash-attn", "on")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [(("/nothing.gguf",), "does not exist"), (("smollm2-135",), "smollm2-135m")],
)
def test_bad_input_is_one_line_and_exit_code_2(arguments: tuple[str, ...], reason: str) -> None:
    done = mashbox("certify", *arguments)
    assert (done.returncode, reason in done.stderr) == (2, True)
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("kind", ["window", "hybrid", "recurrent", "experts"])
def test_every_kind_of_model_passes(tiny_model: Callable[[str], Path], kind: str) -> None:
    model = ModelConfig(str(tiny_model(kind)), context=512, slots=GATE_SLOTS, threads=1)
    told: list[Message] = []
    Gate(GateConfig(model), lambda model: LlamaBackend(model, lambda _: None), told.append).run()
    checks = [message.check for message in told if isinstance(message, Found)]
    assert [check for check in checks if check.outcome == "failed"] == []
    assert ("snapshots" in {check.name for check in checks}) == (kind != "experts")
    assert isinstance(told[-1], Ended)
    assert told[-1].passed


def certify_scripted(
    monkeypatch: pytest.MonkeyPatch, demo_file: Path, backend: str, folder: Path, *options: str
) -> Result:
    """The command in this process, with another backend in the gate's."""
    monkeypatch.setenv("MASHBOX_CACHE", str(folder))
    config = partial(GateConfig, backend=f"tests.inexact:{backend}")
    monkeypatch.setattr(certification, "GateConfig", config)
    return CliRunner().invoke(cli.app, ["certify", str(demo_file), "--ctx", "1024", *options])


@pytest.mark.parametrize(
    ("backend", "code", "verdict"),
    [
        (
            "ExactBackend",
            0,
            "passed: with --exact, up to 8 rows are decoded and 512 tokens prefilled together.",
        ),
        ("SeesNeighbours", 1, "did not pass: 1 of 14 checks failed."),
        ("Dies", 1, "did not pass: 1 of 3 checks failed."),
    ],
)
def test_exit_codes_tell_whether_it_passed(
    monkeypatch: pytest.MonkeyPatch, demo_file: Path, tmp_path: Path, backend: str, code: int, verdict: str
) -> None:
    done = certify_scripted(monkeypatch, demo_file, backend, tmp_path)
    assert done.exit_code == code, done.output
    assert f"{demo_file.name} {verdict}" in done.output
    (file,) = (tmp_path / "certificates").iterdir()
    assert msgspec.json.decode(file.read_bytes(), type=Certificate).passed is (code == 0)


def test_a_quick_run_gives_no_certificate(
    monkeypatch: pytest.MonkeyPatch, demo_file: Path, tmp_path: Path
) -> None:
    done = certify_scripted(monkeypatch, demo_file, "ExactBackend", tmp_path, "--quick")
    assert done.exit_code == 0
    assert done.output.endswith("Certificate: none, as not all was tried\n")
    assert not (tmp_path / "certificates").exists()


@pytest.mark.parametrize("missing", ["certificates", "fingerprints"])
def test_what_cannot_be_kept_is_told_before_the_checks(
    monkeypatch: pytest.MonkeyPatch, demo_file: Path, tmp_path: Path, missing: str
) -> None:
    (tmp_path / missing).touch()
    done = certify_scripted(monkeypatch, demo_file, "Dies", tmp_path)
    assert (done.exit_code, str(done.output).count("\n"), "Cannot" in done.output) == (2, 2, True), (
        done.output
    )


def test_a_model_that_changes_meanwhile_gets_no_certificate(
    monkeypatch: pytest.MonkeyPatch, demo_file: Path, tmp_path: Path
) -> None:
    digests = iter(["a" * 64, "b" * 64])
    monkeypatch.setattr(certification, "weights_sha256", lambda paths: next(digests))
    done = certify_scripted(monkeypatch, demo_file, "ExactBackend", tmp_path, "--quick")
    assert (done.exit_code, "was replaced" in done.output) == (2, True)
