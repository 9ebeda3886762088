"""States that go bad in host memory or that the library refuses: noticed, counted and computed anew."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

import pytest
from bench.prompts import fresh_text

from mashbox.config import ModelConfig
from mashbox.engine.types import CacheReport
from tests.model.engine_room import LLAMA, Said, engine_room

PROMPTS = [fresh_text(80, f"damaged {number}") for number in range(4)]
"""The same words in four orders, so that their states are of one size; two of them are never in the slots."""


def config(model: Path) -> ModelConfig:
    return ModelConfig(
        str(model),
        context=512,
        slots=2,
        threads=1,
        prefill_rows=64,
        flash_attn="off",
        exact=True,
        cache_ram_mib=64,
    )


@dataclass(frozen=True)
class Rounds:
    """The same prompts asked three times, and what was dropped on the way."""

    first: list[Said]
    second: list[Said]
    third: list[Said]
    report: CacheReport

    @property
    def misses(self) -> int:
        """Prompts that were known and computed from their start all the same."""
        return [said.usage.cached_tokens for said in (*self.second, *self.third)].count(0)

    def check(self, sound: list[str]) -> None:
        """All answers are right."""
        for answers in (self.first, self.second, self.third):
            assert [said.text for said in answers] == sound


def ask_thrice(model: Path, backend: str) -> Rounds:
    """Three rounds; with so few slots, every prompt of the later ones comes back from host memory."""

    async def run() -> Rounds:
        async with engine_room(config(model), backend) as room:
            first, second, third = [[await room.ask(prompt, 4) for prompt in PROMPTS] for _ in range(3)]
            misses = [said.usage.cached_tokens for said in (*second, *third)].count(0)
            report = await room.report(lambda report: report.dropped >= misses)
            return Rounds(first, second, third, report)

    return asyncio.run(run())


@pytest.fixture(scope="module")
def sound(demo_file: Path) -> list[str]:
    """The answers of an engine whose states are left alone; it does reuse them."""
    rounds = ask_thrice(demo_file, LLAMA)
    assert [said.usage.cached_tokens for said in rounds.first] == [0] * 4
    assert [said.usage.cached_tokens for said in (*rounds.second, *rounds.third)] == [64] * 8
    assert rounds.report.dropped == 0
    rounds.check([said.text for said in rounds.first])
    return [said.text for said in rounds.first]


@pytest.mark.parametrize("damage", ["Flipping", "Cutting", "Swapping"])
def test_a_damaged_state_is_dropped_and_computed_anew(demo_file: Path, sound: list[str], damage: str) -> None:
    rounds = ask_thrice(demo_file, f"tests.damaging:{damage}")
    rounds.check(sound)
    assert rounds.misses > 0
    assert rounds.report.dropped == rounds.misses


@pytest.mark.parametrize("refusal", ["Refusing", "Misplacing"])
def test_a_state_that_cannot_be_restored_is_computed_anew(
    demo_file: Path, sound: list[str], refusal: str
) -> None:
    rounds = ask_thrice(demo_file, f"tests.damaging:{refusal}")
    rounds.check(sound)
    assert (rounds.misses, rounds.report.dropped) == (8, 8)


def test_a_state_that_cannot_be_saved_is_computed_anew(demo_file: Path, sound: list[str]) -> None:
    rounds = ask_thrice(demo_file, "tests.damaging:Unsaving")
    rounds.check(sound)
    assert (rounds.misses, rounds.report.dropped, rounds.report.states) == (8, 0, 0)
