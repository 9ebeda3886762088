"""The same request gives the same text, whatever runs beside it and however its prompt was prefilled."""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mashbox.config import ModelConfig
from mashbox.engine.llama import LlamaBackend
from mashbox.engine.types import Segment
from tests.model.conftest import DEMO, Box, run_box

OPTIONS = ("--ctx", "2048", "--slots", "8", "--threads", "2", "--cache-ram", "0")
"""Without host memory, so that every prompt is computed anew once the slots are flushed."""

WORDS = ["the", "cat", "sat", "on", "a", "red", "mat", "and", "looked", "at", "seven", "green", "planets"]


def prompts(lengths: list[int]) -> list[str]:
    """Eight different texts of so many words; each begins differently, so that no cache helps."""
    pick = random.Random(11)
    return [
        f"Story {number}. " + " ".join(pick.choice(WORDS) for _ in range(length))
        for number, length in enumerate(lengths)
    ]


def texts(box: Box, asked: list[str], together: bool) -> list[str]:
    """The greedy answers."""

    def ask(prompt: str) -> str:
        text: str = box.complete(prompt, max_tokens=32)["choices"][0]["text"]
        return text

    if together:
        with ThreadPoolExecutor(len(asked)) as pool:
            return list(pool.map(ask, asked))
    return [ask(prompt) for prompt in asked]


def flush_slots(box: Box) -> None:
    """Give every slot another state, so that the next prompts are computed from the start."""
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: box.complete(f"{number} flush " * 50, max_tokens=1), range(8)))


@pytest.fixture(scope="module")
def fast_box() -> Iterator[Box]:
    with run_box(DEMO, *OPTIONS) as box:
        yield box


def test_alone_as_beside_seven_others(fast_box: Box) -> None:
    """Up to 512 tokens of context: beyond, flash attention splits a lone stream's keys over threads."""
    asked = prompts([5, 20, 40, 80, 120, 160, 200, 240])
    alone = texts(fast_box, asked, together=False)
    flush_slots(fast_box)
    assert texts(fast_box, asked, together=True) == alone


@pytest.fixture(scope="module")
def plain_box() -> Iterator[Box]:
    with run_box(DEMO, *OPTIONS, "--flash-attn", "off") as box:
        yield box


def test_long_prompts_alone_as_beside_seven_others_without_flash_attention(plain_box: Box) -> None:
    asked = prompts([5, 600, 40, 20, 500, 10, 60, 80])
    alone = texts(plain_box, asked, together=False)
    flush_slots(plain_box)
    assert texts(plain_box, asked, together=True) == alone


def test_a_prompt_in_wide_calls_or_narrow_ones_gives_the_same_scores_to_the_bit(demo_file: Path) -> None:
    """What the scheduler relies on when it widens a call; flash attention on, as by default."""
    backend = LlamaBackend(ModelConfig(str(demo_file), context=2048, slots=2, threads=2), lambda _: None)
    grid, widest = backend.facts.grid, backend.facts.widest
    prompt = backend.tokenize([Segment(prompts([1100])[0], True)])
    scores = []
    for slot, size in enumerate((grid, widest)):
        full = len(prompt) // grid * grid
        for start in range(0, full, size):
            backend.prefill(slot, start, prompt[start : min(start + size, full)], False)
        logits = backend.prefill(slot, full, prompt[full:], True)
        assert logits is not None
        scores.append(logits.copy())
    backend.close()
    assert len(prompt) > 2 * widest - grid
    assert len(prompt) % grid
    assert (scores[0] == scores[1]).all()
