"""A real model with one request that fails: a backend for `WorkerConfig.backend`.

A prompt with the word of a mark in it fails: in its first prefill call, or when its third token is picked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mashbox.config import ModelConfig
from mashbox.engine.backend import Logits
from mashbox.engine.llama import LlamaBackend
from mashbox.engine.types import Segment

EARLY, LATE = " zebra", " walrus"


class Failing(LlamaBackend):
    """See the module."""

    def __init__(self, config: ModelConfig, progress: Callable[[float], None]) -> None:
        super().__init__(config, progress)
        self._early, self._late = (self._token(word) for word in (EARLY, LATE))
        self._left: dict[int, int] = {}
        """Tokens until it fails, by slot."""

    def _token(self, word: str) -> int:
        return self.tokenize([Segment(word, False)], begins=False)[0]

    def prefill(self, slot: int, start: int, tokens: Sequence[int], want_logits: bool) -> Logits | None:
        if self._early in tokens:
            raise RuntimeError("told to fail")
        self._left.pop(slot, None)
        if self._late in tokens:
            self._left[slot] = 3
        return super().prefill(slot, start, tokens, want_logits)

    def decode(
        self, slots: Sequence[int], positions: Sequence[int], tokens: Sequence[int]
    ) -> Sequence[Logits]:
        rows = list(super().decode(slots, positions, tokens))
        for place, slot in enumerate(slots):
            if slot in self._left:
                self._left[slot] -= 1
                if not self._left[slot]:
                    rows[place] = rows[place][:0]
        return rows
