"""The seam below our scheduler: what a model library must do for one decode loop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from mashbox.engine.types import ModelFacts, Segment

Logits = npt.NDArray[np.float32]
"""One row of scores, shape [vocab_size]; valid until the next call into the backend."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Every token a model has, by id."""

    literals: Sequence[bytes]
    """The bytes each token stands for; control tokens as they are written. Some may be empty."""
    control: frozenset[int]
    """Tokens that add nothing to the text: their `piece` is empty, their literal is not."""
    ends: frozenset[int]
    """Tokens that end the model's turn."""


class Backend(Protocol):
    """A loaded model with `facts.slots` sequences of `facts.context` tokens each.

    All calls but `tokenize`, `piece`, `is_end` and `vocabulary` come from the engine's one thread; those
    four are safe from other threads at any time. A call that raises leaves the other slots usable.
    """

    @property
    def facts(self) -> ModelFacts: ...

    @property
    def vocabulary(self) -> Vocabulary: ...

    def tokenize(self, segments: Sequence[Segment], begins: bool = True) -> list[int]:
        """Token ids of a text. When it `begins` a prompt, the beginning-of-text token is included once
        if the model wants it; else the text continues another one and stands for itself.
        """
        ...

    def piece(self, token: int) -> bytes:
        """The bytes a token adds to the text; empty for control tokens."""
        ...

    def is_end(self, token: int) -> bool:
        """True for tokens that end the model's turn."""
        ...

    def prefill(self, slot: int, start: int, tokens: Sequence[int], want_logits: bool) -> Logits | None:
        """Process `tokens` at positions start, start+1, ... of a slot, in one library call.

        Returns the last token's logits when wanted.
        """
        ...

    def decode(
        self, slots: Sequence[int], positions: Sequence[int], tokens: Sequence[int]
    ) -> Sequence[Logits]:
        """Process one token in each of several slots, in one library call; logits row by row."""
        ...

    def trim(self, slot: int, length: int) -> bool:
        """Cut a slot's state back to its first `length` tokens; False: it cannot, the slot is now empty."""
        ...

    def shortest(self, slot: int) -> int:
        """The shortest length, 0 aside, that the slot's state can be cut back to now.

        0 where any will do; the state's own length where it cannot be cut.
        """
        ...

    def positions(self, slot: int) -> tuple[int, int]:
        """The first and the last position that every part of a slot's state holds; (-1, -1) when empty."""
        ...

    def state_size(self, slot: int, partial: bool) -> int:
        """Bytes that `save` of a slot's state takes now."""
        ...

    def save(self, slot: int, partial: bool, into: memoryview) -> None:
        """Write a slot's state into exactly `state_size` bytes.

        A `partial` image is only what cannot be cut back (sliding windows, recurrent state); the rest stays
        in the slot. Raises RuntimeError; the slot is unchanged.
        """
        ...

    def restore(self, slot: int, partial: bool, image: memoryview) -> None:
        """Put an image into a slot; the same bytes give the same results, to the bit.

        A whole image needs an empty slot. A partial one of length n goes onto a state that holds the same
        first n tokens, and `trim(slot, n)` has to follow. The bytes must be those of `save`, which the caller
        has checked: of damaged ones a library may take positions and numbers that spoil the slot for good.
        Raises RuntimeError; the slot is then empty.
        """
        ...
