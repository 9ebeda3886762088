"""One loaded model and a long text on it: what the checks below the engine's loop are made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from mashbox.engine.backend import Backend, Logits
from mashbox.engine.certify.texts import story
from mashbox.engine.types import Segment

TOKENS_A_SENTENCE = 12
"""Fewer than any sentence of a story has."""


class ClosableBackend(Backend, Protocol):
    """A backend that can be replaced by another one in the same process."""

    def close(self) -> None:
        """Free the model; nothing may be called after it."""
        ...


def prompt_of(backend: Backend, number: int, length: int) -> list[int]:
    """The first `length` tokens of a story."""
    text = story(number, length // TOKENS_A_SENTENCE + 1)
    return backend.tokenize([Segment(text, False)])[:length]


def same(first: Logits, second: Logits) -> bool:
    """Whether two rows of scores are equal to the bit."""
    return first.tobytes() == second.tobytes()


def distance(first: Logits, second: Logits) -> float:
    """The largest difference between two rows of scores."""
    return float(np.max(np.abs(first - second)))


class Probe:
    """Fills slots with the beginning of one text. All lengths are in tokens."""

    def __init__(self, backend: Backend, tokens: Sequence[int]) -> None:
        self.backend = backend
        self.tokens = tokens
        self.grid = backend.facts.grid

    def empty(self) -> None:
        """Make all slots empty."""
        for slot in range(self.backend.facts.slots):
            self.backend.trim(slot, 0)

    def fill(self, slot: int, start: int, end: int, width: int = 0) -> Logits:
        """Prefill a slot that holds `start` tokens up to `end`; the last token's scores.

        Cut as the engine does: at multiples of `grid`, calls of at most `width` (0: one chunk), a rest alone.
        """
        logits: Logits | None = None
        while start < end:
            whole = end // self.grid * self.grid
            cut = (start + max(width, self.grid)) // self.grid * self.grid
            cut = end if start >= whole else min(cut, whole)
            logits = self.backend.prefill(slot, start, self.tokens[start:cut], cut == end)
            start = cut
        assert logits is not None
        return logits.copy()

    def step(self, slot: int, position: int) -> Logits:
        """Decode the text's token at a position in a call of its own."""
        return self.backend.decode([slot], [position], [self.tokens[position]])[0].copy()

    def save(self, slot: int, partial: bool = False) -> bytearray:
        """An image of a slot's state."""
        image = bytearray(self.backend.state_size(slot, partial))
        self.backend.save(slot, partial, memoryview(image))
        return image

    def put(self, slot: int, image: bytearray) -> None:
        """Replace a slot's state by a whole image."""
        self.backend.trim(slot, 0)
        self.backend.restore(slot, False, memoryview(image))

    def back(self, slot: int, length: int, image: bytearray) -> None:
        """Cut a slot back to the length of an image of it, or put the image there where it cannot be cut."""
        if not self.backend.trim(slot, length):
            self.backend.restore(slot, False, memoryview(image))
