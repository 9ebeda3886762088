"""The seam below our scheduler: what a model library must do for one decode loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from mashbox.engine.types import ModelFacts, Segment

Logits = npt.NDArray[np.float32]
"""One row of scores, shape [vocab_size]; valid until the next call into the backend."""


class Backend(Protocol):
    """A loaded model with `facts.slots` sequences of `facts.context` tokens each.

    All calls but `tokenize`, `piece` and `is_end` come from the engine's one thread; those three
    are safe from another thread at any time. A call that raises leaves the other slots usable.
    """

    @property
    def facts(self) -> ModelFacts: ...

    def tokenize(self, segments: Sequence[Segment]) -> list[int]:
        """Token ids of a prompt, the beginning-of-text token included once if the model wants it."""
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
