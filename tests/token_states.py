"""Slots whose state is nothing but their tokens: what the tests' backends have in common."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


class TokenStates:
    """The part of a `Backend` that keeps states; an image is the tokens, four bytes each."""

    def __init__(self, slots: int) -> None:
        self.held: list[list[int]] = [[] for _ in range(slots)]
        """The tokens of each slot."""

    def extend(self, slot: int, start: int, tokens: Sequence[int]) -> None:
        """Add tokens at a position, which has to be the slot's end."""
        assert len(self.held[slot]) == start
        self.held[slot].extend(tokens)

    def trim(self, slot: int, length: int) -> bool:
        del self.held[slot][length:]
        return True

    def shortest(self, slot: int) -> int:
        return 0

    def positions(self, slot: int) -> tuple[int, int]:
        last = len(self.held[slot]) - 1
        return min(0, last), last

    def state_size(self, slot: int, partial: bool) -> int:
        return 4 * len(self.held[slot])

    def save(self, slot: int, partial: bool, into: memoryview) -> None:
        into[:] = np.array(self.held[slot], np.int32).tobytes()

    def restore(self, slot: int, partial: bool, image: memoryview) -> None:
        assert not self.held[slot]
        self.held[slot] = np.frombuffer(image, np.int32).tolist()
