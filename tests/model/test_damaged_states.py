"""States that go bad in host memory or that the library refuses: noticed, counted and computed anew."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

import pytest
from bench.prompts import fresh_text

from mashbox.config import ModelConfig
from mashbox.engine.types import CacheReport
from tests import tiny_models
from tests.model.engine_room import LLAMA, Said, engine_room

KINDS = ("q8_0", "hybrid", "recurrent", "window")
GRID = 64
PROMPTS = [fresh_text(40, f"damaged {number}") for number in range(4)]
"""The same words in four orders, so that their states are of one size; two of them are never in the slots."""


@pytest.fixture(scope="module", params=KINDS)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of each kind of state."""
    return tiny_models.write(request.param, tmp_path_factory.mktemp("tiny"))


@dataclass(frozen=True)
class Rounds:
    """The same prompts asked again and again, and what was dropped on the way."""

    rounds: list[list[Said]]
    report: CacheReport

    @property
    def misses(self) -> list[int]:
        """In each round: prompts that were computed from their start."""
        return [[said.usage.cached_tokens for said in answers].count(0) for answers in self.rounds]

    def check(self, sound: list[str]) -> None:
        """All answers are right, and what is used again is all that the grid allows."""
        for answers in self.rounds:
            assert [said.text for said in answers] == sound
            for said in answers:
                most = (said.usage.prompt_tokens - 1) // GRID * GRID
                assert said.usage.cached_tokens in (0, most)


def ask(model: Path, backend: str, rounds: int = 3) -> Rounds:
    """With so few slots, every prompt comes back from host memory, if it comes back."""
    config = ModelConfig(
        str(model),
        context=512,
        slots=2,
        threads=1,
        prefill_rows=GRID,
        flash_attn="off",
        exact=True,
        cache_ram_mib=64,
    )

    async def run() -> Rounds:
        async with engine_room(config, backend) as room:
            answers = [[await room.ask(prompt, 8) for prompt in PROMPTS] for _ in range(rounds)]
            return Rounds(answers, room.report)

    return asyncio.run(run())


@pytest.fixture(scope="module")
def sound(model: Path) -> list[str]:
    """The answers of an engine whose states are left alone; it does reuse them."""
    rounds = ask(model, LLAMA)
    texts = [said.text for said in rounds.rounds[0]]
    rounds.check(texts)
    assert rounds.misses == [4, 0, 0]
    assert rounds.report.dropped == 0
    assert len(set(texts)) == len(texts)
    return texts


@pytest.mark.parametrize("damage", ["Flipping", "Cutting", "Swapping"])
def test_a_damaged_state_is_dropped_and_computed_anew(model: Path, sound: list[str], damage: str) -> None:
    rounds = ask(model, f"tests.damaging:{damage}")
    rounds.check(sound)
    assert sum(rounds.misses[1:]) > 0
    assert rounds.report.dropped == sum(rounds.misses[1:])


def test_a_damaged_state_does_not_stand_in_the_way_of_a_sound_one(model: Path, sound: list[str]) -> None:
    rounds = ask(model, "tests.damaging:EarlyFlipping", rounds=4)
    rounds.check(sound)
    assert rounds.misses[1] > 0
    assert rounds.misses[3] == 0


@pytest.mark.parametrize("refusal", ["Refusing", "Misplacing"])
def test_a_state_that_cannot_be_restored_is_computed_anew(
    model: Path, sound: list[str], refusal: str
) -> None:
    rounds = ask(model, f"tests.damaging:{refusal}")
    rounds.check(sound)
    assert (rounds.misses, rounds.report.dropped) == ([4, 4, 4], 8)


def test_a_state_that_cannot_be_saved_is_computed_anew(model: Path, sound: list[str]) -> None:
    rounds = ask(model, "tests.damaging:Unsaving")
    rounds.check(sound)
    assert (rounds.misses, rounds.report.dropped, rounds.report.states) == ([4, 4, 4], 0, 0)
