"""Backends for the certification gate: an exact one, whose scores are a function of a slot's tokens, and its
variants, each wrong in one way. As in `scripted.py` a token is a byte.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from zlib import crc32

import msgspec
import numpy as np

from mashbox.config import ModelConfig
from mashbox.engine.backend import Logits
from mashbox.engine.types import Segment
from tests.scripted import ScriptedBackend

COPIES = 64
"""Of the tokens in an image: host memory is given out in pages."""


class ExactBackend(ScriptedBackend):
    """Nothing but the tokens matters."""

    can_trim = True

    def __init__(self, config: ModelConfig, progress: Callable[[float], None]) -> None:
        super().__init__(config, progress)
        self.facts = msgspec.structs.replace(
            self.facts,
            widest=config.prefill_rows,
            exact=config.exact,
            decode_rows=config.decode_rows if config.exact else 0,
            can_trim=self.can_trim,
        )

    def prefill(self, slot: int, start: int, tokens: Sequence[int], want_logits: bool) -> Logits | None:
        known = self.held[slot]
        assert len(known) == start
        known.extend(tokens)
        return self.scores(slot) if want_logits else None

    def decode(
        self, slots: Sequence[int], positions: Sequence[int], tokens: Sequence[int]
    ) -> Sequence[Logits]:
        for slot, position, token in zip(slots, positions, tokens, strict=True):
            assert len(self.held[slot]) == position
            self.held[slot].append(token)
        return [self.scores(slot) for slot in slots]

    def scores(self, slot: int) -> Logits:
        """Of the next token."""
        seed = crc32(np.array(self.held[slot], np.uint16).tobytes())
        return np.random.default_rng(seed).random(self.facts.vocab_size, np.float32)

    def state_size(self, slot: int, partial: bool) -> int:
        return COPIES * super().state_size(slot, partial)

    def save(self, slot: int, partial: bool, into: memoryview) -> None:
        into[:] = np.array(self.held[slot], np.int32).tobytes() * COPIES

    def restore(self, slot: int, partial: bool, image: memoryview) -> None:
        super().restore(slot, partial, image[: len(image) // COPIES])

    def close(self) -> None:
        """Nothing to free."""


class ReadsControlWords(ExactBackend):
    """Control words in text become control tokens."""

    def tokenize(self, segments: Sequence[Segment], begins: bool = True) -> list[int]:
        return super().tokenize([Segment(segment.text, True) for segment in segments], begins)


class LosesCharacters(ExactBackend):
    """Tokenising drops what is not ASCII."""

    def tokenize(self, segments: Sequence[Segment], begins: bool = True) -> list[int]:
        return [token for token in super().tokenize(segments, begins) if token < 128 or token > 255]


class FourRowsDiffer(ExactBackend):
    """From four rows on, a decode call gives other scores."""

    def decode(
        self, slots: Sequence[int], positions: Sequence[int], tokens: Sequence[int]
    ) -> Sequence[Logits]:
        rows = super().decode(slots, positions, tokens)
        return [row + np.float32(0.5) for row in rows] if len(rows) >= 4 else rows


class LoneRowDiffers(ExactBackend):
    """A row alone has other scores than rows together."""

    def decode(
        self, slots: Sequence[int], positions: Sequence[int], tokens: Sequence[int]
    ) -> Sequence[Logits]:
        rows = super().decode(slots, positions, tokens)
        return [row + np.float32(0.5) for row in rows] if len(rows) == 1 else rows


class WideCallsDiffer(ExactBackend):
    """Prefill calls of more than 256 tokens leave another state behind."""

    def prefill(self, slot: int, start: int, tokens: Sequence[int], want_logits: bool) -> Logits | None:
        logits = super().prefill(slot, start, tokens, want_logits)
        if len(tokens) > 256:
            self.held[slot][-1] ^= 1
        return logits


class DamagesRestored(ExactBackend):
    """A restored state has one other token."""

    def restore(self, slot: int, partial: bool, image: memoryview) -> None:
        super().restore(slot, partial, image)
        self.held[slot][3] ^= 1


class DamagesCut(ExactBackend):
    """A state that is cut back loses more than the tokens at its end."""

    def trim(self, slot: int, length: int) -> bool:
        if 0 < length < len(self.held[slot]):
            self.held[slot][length - 1] ^= 1
        return super().trim(slot, length)


class SeesNeighbours(ExactBackend):
    """What lies in the other slots changes a slot's scores, when tokens are few there."""

    def scores(self, slot: int) -> Logits:
        crowd = sum(0 < len(tokens) < 30 for tokens in self.held)
        return super().scores(slot) + np.float32(crowd / 64)


class RefusesToSave(ExactBackend):
    """The library cannot save."""

    def save(self, slot: int, partial: bool, into: memoryview) -> None:
        raise RuntimeError("no state today")


class Dies(ExactBackend):
    """The first restore ends the process, as a failed assertion of the library does."""

    def restore(self, slot: int, partial: bool, image: memoryview) -> None:
        os.kill(os.getpid(), signal.SIGABRT)


class Killed(ExactBackend):
    """Somebody ends the process in the first restore."""

    def restore(self, slot: int, partial: bool, image: memoryview) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


class Computes(ExactBackend):
    """The first restore takes longer than anybody waits; it says which process it is in."""

    def restore(self, slot: int, partial: bool, image: memoryview) -> None:
        print(os.getpid(), flush=True)
        time.sleep(600)


class NeverCut(ExactBackend):
    """States cannot be cut back, as recurrent ones; a partial image brings the whole state."""

    can_trim = False

    def trim(self, slot: int, length: int) -> bool:
        possible = length in (0, len(self.held[slot]))
        return super().trim(slot, length if possible else 0) and possible

    def shortest(self, slot: int) -> int:
        return len(self.held[slot])

    def restore(self, slot: int, partial: bool, image: memoryview) -> None:
        if partial:
            self.held[slot].clear()
        super().restore(slot, partial, image)


class DamagesSnapshots(NeverCut):
    """A partial image brings one other token."""

    def restore(self, slot: int, partial: bool, image: memoryview) -> None:
        super().restore(slot, partial, image)
        if partial:
            self.held[slot][3] ^= 1
