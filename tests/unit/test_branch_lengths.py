"""From characters to tokens: vocabularies of every sort, on a grid of one token and on a wider one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from mashbox.config import ModelConfig
from mashbox.engine.branches import branch_lengths
from mashbox.engine.preparer import Preparer
from mashbox.engine.types import Sampling, Segment, Submit
from tests.scripted import OPEN, ScriptedBackend

START = 263  # any token whose literal is not in the text


class Fake(ScriptedBackend):
    """Tokens are bytes; with `start`, one more before the text, with `spaces`, one before each segment."""

    def __init__(self, grid: int, start: bool = False, spaces: bool = False) -> None:
        super().__init__(ModelConfig("", context=500, slots=1, threads=1), lambda _: None)
        self.facts = msgspec.structs.replace(self.facts, grid=grid)
        self._start = [START] if start else []
        self._space = [ord(" ")] if spaces else []
        self.calls = 0

    def tokenize(self, segments: Sequence[Segment], begins: bool = True) -> list[int]:
        self.calls += 1
        parts = [self._space + super(Fake, self).tokenize([segment]) for segment in segments]
        return self._start + [token for part in parts for token in part]


def lengths(backend: Fake, segments: Sequence[Segment], branches: Sequence[int]) -> tuple[int, ...]:
    return branch_lengths(backend, segments, backend.tokenize(segments), branches)


ABC = (Segment("abcdefgh", True),)
SPECIAL = (Segment("ab<|open|>cd", True), Segment("<|open|>", False), Segment("ef", True))


@pytest.mark.parametrize(
    ("fake", "segments", "branches", "expected"),
    [
        ({}, ABC, (), ()),
        ({}, ABC, (3, 6), (2, 5)),
        ({}, ABC, (0, 1), ()),  # nothing is left before them
        ({}, ABC, (2, 2, 8), (1, 7)),
        ({"start": True}, ABC, (1, 6), (1, 6)),
        ({"spaces": True}, ABC, (1, 6), (1, 6)),
        ({"start": True, "spaces": True}, ABC, (1, 6), (2, 7)),
        ({}, (Segment("aé日😀z", False),), (1, 2, 3, 4, 5), (2, 5, 9, 10)),
        ({}, SPECIAL, (2, 10, 12, 13, 20, 22), (1, 2, 4, 5, 12, 14)),
        ({"spaces": True}, SPECIAL, (2, 10, 12, 13, 20, 22), (2, 3, 5, 7, 14, 17)),
        ({"start": True, "spaces": True}, SPECIAL, (2, 12, 22), (3, 6, 18)),
    ],
)
def test_the_tokens_before_a_place_but_one(
    fake: dict[str, Any], segments: Sequence[Segment], branches: Sequence[int], expected: tuple[int, ...]
) -> None:
    assert lengths(Fake(1, **fake), segments, branches) == expected


def test_lengths_are_multiples_of_the_grid_each_told_once() -> None:
    text = (Segment("x" * 100, False),)
    assert lengths(Fake(16), text, (5, 16, 17, 20, 33, 40, 96, 97)) == (16, 32, 80, 96)


def test_tokens_that_reach_over_a_place_do_not_count() -> None:
    backend = Fake(1)
    assert branch_lengths(backend, (Segment("ab<|open|>", True),), [97, 98, OPEN], (3, 9, 10)) == (1, 2)


def test_the_text_is_not_tokenised_again_where_the_tokens_spell_it() -> None:
    for spaces, calls in ((False, 1), (True, 4)):
        backend = Fake(1, start=True, spaces=spaces)
        lengths(backend, SPECIAL, (2, 12, 22))
        assert backend.calls == calls


def test_a_request_brings_its_branches_to_the_engine() -> None:
    backend = Fake(4)
    segments = (Segment("0123456789", False),)
    prompt = backend.tokenize(segments)
    for branches, expected in (((), ()), ((3, 6, 10), (4, 8))):
        command = Submit("a", segments, Sampling(), branches=branches)
        assert Preparer(backend).prepare(command, prompt, 0.0).branches == expected
