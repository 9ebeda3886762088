"""The certification gate: an exact backend passes, and each way to be inexact is found and named."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import msgspec
import pytest

from mashbox.certification import run_gate
from mashbox.config import ModelConfig
from mashbox.engine.certificate import Check
from mashbox.engine.certify.gate import Gate, plan_for
from mashbox.engine.certify.messages import Doing, Ended, Found, GateConfig, Loaded, Message
from mashbox.errors import ConfigError
from tests import inexact
from tests.inexact import ExactBackend

MODEL = ModelConfig("", context=1024, slots=8, threads=1)
IN_LOOP = {"again in its slot", "a next turn", "taken over from another slot", "restored from host memory"}


def gate(backend: type[ExactBackend]) -> tuple[dict[str, Check], Ended]:
    """All checks by name, and the end."""
    told: list[Message] = []
    Gate(GateConfig(MODEL, quick=True), lambda model: backend(model, lambda _: None), told.append).run()
    assert isinstance(told[0], Loaded)
    ended = told[-1]
    assert isinstance(ended, Ended)
    return {message.check.name: message.check for message in told if isinstance(message, Found)}, ended


def test_matrices_of_floats_leave_one_row_whatever_was_seen() -> None:
    told: list[Message] = []
    config = GateConfig(MODEL, quick=True, float_matrices=True)
    Gate(config, lambda model: ExactBackend(model, lambda _: None), told.append).run()
    assert told[-1] == Ended(passed=True, decode_rows=1, prefill_rows=512)


def failed(checks: dict[str, Check]) -> set[str]:
    return {name for name, check in checks.items() if check.outcome == "failed"}


def test_an_exact_backend_passes_and_may_use_all() -> None:
    checks, ended = gate(ExactBackend)
    assert (failed(checks), ended) == (set(), Ended(passed=True, decode_rows=8, prefill_rows=512))
    measured = {name for name, check in checks.items() if check.outcome == "measured"}
    assert measured == {
        *("prefill calls", "decode calls", "default mode: beside 7", "default mode: next turn")
    }
    assert checks["default mode: beside 7"].figure == "0 of 8 answers differ"


@pytest.mark.parametrize(
    ("backend", "found"),
    [
        (inexact.ReadsControlWords, {"control words stay text"}),
        (inexact.LosesCharacters, {"text comes back"}),
        (
            inexact.DamagesRestored,
            {"save and restore", "taken over from another slot", "restored from host memory"},
        ),
        (inexact.DamagesCut, {"cut back", *IN_LOOP}),
        (inexact.SeesNeighbours, {"beside 7 others", "again in its slot"}),
        (inexact.DamagesSnapshots, {"snapshots", *IN_LOOP}),
    ],
)
def test_what_is_wrong_is_named(backend: type[ExactBackend], found: set[str]) -> None:
    checks, ended = gate(backend)
    assert failed(checks) == found
    assert not ended.passed


def test_states_that_cannot_be_cut_pass_by_their_snapshots() -> None:
    checks, ended = gate(inexact.NeverCut)
    assert (failed(checks), ended.passed) == (set(), True)
    assert checks["cut back"].figure == "this model's states are never cut back, they are restored"
    assert checks["snapshots"].figure == "the same scores, at 64, 576 tokens"


@pytest.mark.parametrize(
    ("backend", "rows", "width"),
    [
        (inexact.FourRowsDiffer, 3, 512),
        (inexact.LoneRowDiffers, 1, 512),
        (inexact.WideCallsDiffer, 8, 128),
    ],
)
def test_what_depends_on_the_size_of_calls_limits_exact_mode(
    backend: type[ExactBackend], rows: int, width: int
) -> None:
    checks, ended = gate(backend)
    assert (failed(checks), ended) == (set(), Ended(passed=True, decode_rows=rows, prefill_rows=width))


def test_default_mode_shows_what_exact_mode_avoids() -> None:
    checks, _ = gate(inexact.FourRowsDiffer)
    assert checks["decode calls"].figure.startswith("rows a call that compute the same: 1-3 | 4-8;")
    assert checks["default mode: beside 7"].figure == "0 of 8 answers differ; scores by up to 0.5"


def test_a_library_that_refuses_has_not_passed() -> None:
    checks, ended = gate(inexact.RefusesToSave)
    assert checks["save and restore"].figure.endswith("the library refuses: no state today")
    assert (ended.passed, ended.decode_rows, ended.prefill_rows) == (False, 1, 64)


@pytest.mark.parametrize("context", [512, 513, 1024, 2048, 32768])
@pytest.mark.parametrize("quick", [False, True])
def test_a_plan_fits_its_context(context: int, quick: bool) -> None:
    plan = plan_for(context, quick)
    assert len(plan.prompts) == 8
    assert max(plan.prompts) > 64
    assert plan.text < context
    assert all(list(part) == sorted(set(part)) for part in (plan.states, plan.contexts, plan.widths))


def in_process(backend: str, model: ModelConfig = MODEL) -> tuple[dict[str, Check], Ended, list[str]]:
    doing: list[str] = []
    config = GateConfig(model, backend=backend, quick=True)
    result = run_gate(
        config, lambda message: doing.append(message.what) if isinstance(message, Doing) else None
    )
    assert result.build == "none"
    return {check.name: check for check in result.checks}, result.ended, doing


def test_the_gate_in_a_process_of_its_own() -> None:
    checks, ended, doing = in_process("tests.inexact:ExactBackend")
    assert ended == Ended(passed=True, decode_rows=8, prefill_rows=512)
    assert set(checks) <= set(doing)


def test_a_process_that_dies_has_not_passed_what_it_was_at() -> None:
    checks, ended, _ = in_process("tests.inexact:Dies")
    assert checks["save and restore"] == Check("save and restore", "failed", "the process ended (signal 6)")
    assert not ended.passed


def test_checks_that_are_ended_from_outside_say_nothing() -> None:
    with pytest.raises(ConfigError, match="ended from outside"):
        in_process("tests.inexact:Killed")


def test_the_process_ends_in_mid_check_when_nobody_reads_any_more() -> None:
    reader, writer = os.pipe()
    config = msgspec.json.encode(GateConfig(MODEL, backend="tests.inexact:Computes", quick=True)).decode()
    command = [sys.executable, "-m", "mashbox.engine.certify", str(writer), config]
    with subprocess.Popen(command, stdout=subprocess.PIPE, pass_fds=[writer]) as process:
        os.close(writer)
        try:
            assert process.stdout is not None
            assert process.stdout.readline()
            os.close(reader)
            assert process.wait(timeout=10) == 1
        finally:
            process.kill()


def test_a_model_that_cannot_be_loaded_is_an_error() -> None:
    with pytest.raises(ConfigError, match="/nothing does not exist"):
        in_process("tests.inexact:ExactBackend", replace(MODEL, path="/nothing"))
