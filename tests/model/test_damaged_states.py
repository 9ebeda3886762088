"""States that go bad in host memory, or that the library does not take back: noticed, counted, computed anew."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from bench.prompts import fresh_text

from mashbox.config import ModelConfig
from mashbox.engine.types import CacheReport
from tests.model.engine_room import LLAMA, Room, Said, engine_room

PROMPTS = [fresh_text(150, f"damaged {number}") for number in range(4)]
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


async def ask_all(room: Room) -> list[Said]:
    return [await room.ask(prompt, 4) for prompt in PROMPTS]


def twice(model: Path, backend: str) -> tuple[list[Said], list[Said], list[Said], CacheReport]:
    """Three rounds of all prompts, and the report after them."""

    async def run() -> tuple[list[Said], list[Said], list[Said], CacheReport]:
        async with engine_room(config(model), backend) as room:
            first, second, third = await ask_all(room), await ask_all(room), await ask_all(room)
            return first, second, third, room.report

    return asyncio.run(run())


def reused(answers: list[Said]) -> list[int]:
    return [said.usage.cached_tokens for said in answers]


def texts(answers: list[Said]) -> list[str]:
    return [said.text for said in answers]


@pytest.fixture(scope="module")
def sound(demo_file: Path) -> list[str]:
    """The answers of an engine whose states are left alone; it does reuse them."""
    first, second, third, report = twice(demo_file, LLAMA)
    assert texts(second) == texts(third) == texts(first)
    assert reused(first) == [0, 0, 0, 0]
    assert reused(second) == reused(third) == [128, 128, 128, 128]
    assert report.dropped == 0
    return texts(first)


@pytest.mark.parametrize("damage", ["Flipping", "Cutting", "Swapping"])
def test_a_damaged_state_is_dropped_and_computed_anew(demo_file: Path, sound: list[str], damage: str) -> None:
    first, second, third, report = twice(demo_file, f"tests.damaging:{damage}")
    assert texts(first) == texts(second) == texts(third) == sound
    misses = (reused(second) + reused(third)).count(0)
    assert report.dropped > 0
    assert report.dropped == misses


@pytest.mark.parametrize("refusal", ["Refusing", "Misplacing"])
def test_a_state_that_cannot_be_restored_is_computed_anew(
    demo_file: Path, sound: list[str], refusal: str
) -> None:
    first, second, third, report = twice(demo_file, f"tests.damaging:{refusal}")
    assert texts(first) == texts(second) == texts(third) == sound
    assert reused(second) == reused(third) == [0, 0, 0, 0]
    assert report.dropped == 8


def test_a_state_that_cannot_be_saved_is_computed_anew(demo_file: Path, sound: list[str]) -> None:
    first, second, third, report = twice(demo_file, "tests.damaging:Unsaving")
    assert texts(first) == texts(second) == texts(third) == sound
    assert reused(second) == reused(third) == [0, 0, 0, 0]
    assert (report.states, report.host_bytes) == (0, 0)
