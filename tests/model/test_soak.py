"""The soak's short form on real servers, and that it notices what it is there to notice."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from soak.config import SHORT, Setup
from soak.conversation import Lengths
from soak.run import soak
from soak.traffic import ACTIONS, Load

from tests import tiny_models
from tests.model.conftest import DEMO

FEW = replace(SHORT, clients=4, families=1)
TINY = Load(clients=8, conversations=4, families=3, turns=6, lengths=Lengths(40, 20), rounds=5)
"""For models with random weights, which are quick and have a token for every byte."""
EXCHANGING = (sys.executable, "-m", "tests.soak.serve", "tests.damaging:Exchanging")


def talking(folder: Path, **changes: object) -> Setup:
    """The demo model, which repeats words; four slots, and room for about four states."""
    plain = Setup(DEMO, exact=False, seed=4, load=FEW, logs=folder, cache_ram_mib=16, context=1024)
    return replace(plain, **changes)  # type: ignore[arg-type]


def tiny(folder: Path, kind: str, **changes: object) -> Setup:
    """A tiny model, in exact mode; room for about ten states."""
    model = str(tiny_models.write(kind, folder))
    plain = Setup(model, exact=True, seed=4, load=TINY, logs=folder, cache_ram_mib=2, repeats=False)
    return replace(plain, **changes)  # type: ignore[arg-type]


@pytest.mark.usefixtures("demo_file")
def test_in_exact_mode_every_answer_is_the_cold_one(tmp_path: Path) -> None:
    outcome = soak(talking(tmp_path, exact=True, load=SHORT))
    assert (outcome.faults, outcome.telling) == ([], [])
    assert outcome.counted["answers compared with cold ones"] >= SHORT.clients
    assert outcome.counted["states evicted"] > 0
    assert sum(outcome.counted[action] for action in ACTIONS) == SHORT.clients * 3


@pytest.mark.usefixtures("demo_file")
def test_in_default_mode_no_answer_has_words_of_another_conversation(tmp_path: Path) -> None:
    outcome = soak(talking(tmp_path))
    assert (outcome.faults, outcome.telling) == ([], [])


@pytest.mark.usefixtures("demo_file")
def test_states_exchanged_behind_all_checks_show_in_the_words_of_answers(tmp_path: Path) -> None:
    """On two slots, so that much is restored; some six of the answers then have a foreign word."""
    load = replace(SHORT, families=1, rounds=8)
    outcome = soak(talking(tmp_path, program=EXCHANGING, slots=2, cache_ram_mib=48, load=load))
    assert [fault for fault in outcome.faults if "of another conversation" in fault]


@pytest.mark.parametrize("kind", ["q8_0", "hybrid", "recurrent", "window"])
def test_models_of_every_kind_answer_as_if_cold(tmp_path: Path, kind: str) -> None:
    outcome = soak(tiny(tmp_path, kind))
    assert (outcome.faults, outcome.telling) == ([], [])
    assert outcome.counted["answers compared with cold ones"] > TINY.clients
    assert outcome.counted["states evicted"] > 0


def test_states_exchanged_behind_all_checks_differ_from_cold_answers(tmp_path: Path) -> None:
    outcome = soak(tiny(tmp_path, "q8_0", program=EXCHANGING))
    assert [fault for fault in outcome.faults if "differs from the cold one" in fault]


@pytest.mark.parametrize("damage", ["Flipping", "Swapping"])
def test_damaged_states_change_no_answer(tmp_path: Path, damage: str) -> None:
    program = (sys.executable, "-m", "tests.soak.serve", f"tests.damaging:{damage}")
    outcome = soak(tiny(tmp_path, "hybrid", program=program))
    assert outcome.faults == []
    assert "is no good" in (tmp_path / "soaked.log").read_text()
