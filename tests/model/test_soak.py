"""The soak's short form on real servers, and that it notices what it is there to notice."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from soak.config import SHORT, Setup
from soak.run import soak
from soak.traffic import ACTIONS

from tests.model.conftest import DEMO

FEW = replace(SHORT, clients=4, families=1, rounds=3)


def setup(folder: Path, **changes: object) -> Setup:
    """Four slots, and room for the states of about four of the conversations."""
    plain = Setup(DEMO, exact=False, seed=10, load=FEW, logs=folder, cache_ram_mib=16, context=1024)
    return replace(plain, **changes)  # type: ignore[arg-type]


@pytest.mark.usefixtures("demo_file")
def test_in_exact_mode_every_answer_is_the_cold_one(tmp_path: Path) -> None:
    outcome = soak(setup(tmp_path, exact=True, load=SHORT))
    assert (outcome.faults, outcome.telling) == ([], [])
    assert outcome.counted["answers compared with cold ones"] > SHORT.clients
    assert outcome.counted["states evicted"] > 0
    assert sum(outcome.counted[action] for action in ACTIONS) == SHORT.clients * 3


@pytest.mark.usefixtures("demo_file")
def test_in_default_mode_no_answer_has_words_of_another_conversation(tmp_path: Path) -> None:
    assert soak(setup(tmp_path)).faults == []


@pytest.mark.usefixtures("demo_file")
def test_states_that_are_exchanged_behind_all_checks_are_noticed_by_the_answers(tmp_path: Path) -> None:
    """The same load as in the test before this one, on two slots, so that more is restored."""
    program = (sys.executable, "-m", "tests.soak.serve", "tests.damaging:Exchanging")
    outcome = soak(setup(tmp_path, program=program, slots=2, cache_ram_mib=48))
    assert [fault for fault in outcome.faults if "of another conversation" in fault]
