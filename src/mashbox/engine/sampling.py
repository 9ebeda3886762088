"""Choose the next token from one row of logits. Pure: the same seed, logits and settings, the same token.

Order: repetition, frequency and presence penalties, then temperature, top_k, top_p, min_p, then the draw.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from mashbox.engine.types import Sampling

LEAST_TEMPERATURE = 1e-6
LEAST_REPETITION, MOST_REPETITION = 1e-6, 1e6
"""Values beyond these mean the same, and would leave the range of 32-bit numbers."""

Row = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int64]


class Penalties:
    """Lowers the scores of tokens that already came.

    Repetition divides positive and multiplies negative scores of tokens in prompt or output;
    frequency (per occurrence) and presence (once) are subtracted for tokens in the output.
    """

    def __init__(self, sampling: Sampling, prompt: Sequence[int]) -> None:
        self._repetition = min(max(sampling.repetition_penalty, LEAST_REPETITION), MOST_REPETITION)
        self._frequency = sampling.frequency_penalty
        self._presence = sampling.presence_penalty
        seen = dict.fromkeys(prompt) if self._repetition != 1.0 else {}
        self._index = {token: place for place, token in enumerate(seen)}
        self._ids = np.zeros(max(64, 2 * len(seen)), dtype=np.int64)
        self._ids[: len(seen)] = list(seen)
        self._counts = np.zeros(self._ids.shape, dtype=np.float32)

    def note(self, token: int) -> None:
        """Remember a generated token."""
        place = self._index.setdefault(token, len(self._index))
        if place == len(self._ids):
            self._ids = np.concatenate([self._ids, np.zeros_like(self._ids)])
            self._counts = np.concatenate([self._counts, np.zeros_like(self._counts)])
        self._ids[place] = token
        self._counts[place] += 1

    def apply(self, logits: Row) -> Row:
        """A copy of the logits with the penalties applied."""
        size = len(self._index)
        ids, counts = self._ids[:size], self._counts[:size]
        scores = logits[ids]
        scores = np.where(scores > 0, scores / self._repetition, scores * self._repetition)
        scores -= counts * self._frequency + (counts > 0) * self._presence
        result = logits.copy()
        result[ids] = scores
        return result


LIKELY = np.float32(1e-3)
"""Part of the largest probability from which a token counts as a likely one."""
BLOCK = 256
SHELL, LEAST_CUT = np.float32(0.25), np.float32(1e-12)


def nucleus(probs: Row, ids: Ids | None, top_p: float) -> Ids:
    """The smallest set of most likely tokens that holds `top_p` of the mass, in no order."""
    pool = np.arange(len(probs)) if ids is None else ids
    weights = probs if ids is None else probs[ids]
    wanted = top_p * float(weights.sum(dtype=np.float64))
    # Sorting a whole vocabulary costs milliseconds: take whole shells, sort only the last one.
    sure, mass, cut = np.zeros(0, np.int64), 0.0, np.float32(weights.max())
    while True:
        lower = cut * SHELL if cut > LEAST_CUT else np.float32(-1)
        shell = np.flatnonzero((weights > lower) & (weights <= cut))
        inside = float(weights[shell].sum(dtype=np.float64))
        if mass + inside >= wanted or lower < 0:
            break
        sure, mass, cut = np.concatenate([sure, shell]), mass + inside, lower
    order = shell[np.argsort(-weights[shell], kind="stable")]
    sums = np.cumsum(weights[order], dtype=np.float64)
    kept: Ids = np.concatenate([sure, order[: int(np.searchsorted(sums, wanted - mass)) + 1]])
    return pool[kept]


def candidates(probs: Row, sampling: Sampling) -> Ids | None:
    """Tokens that may be drawn, or None for all. `probs` is not normalised: its largest is 1."""
    ids: Ids | None = None
    if 0 < sampling.top_k < len(probs):
        # Partitioning a whole vocabulary is slow: leave out what cannot be among them.
        ids = np.flatnonzero(probs >= LIKELY)
        if len(ids) < sampling.top_k:
            ids = np.arange(len(probs))
        ids = ids[np.argpartition(probs[ids], -sampling.top_k)[-sampling.top_k :]]
    if sampling.top_p < 1.0:
        ids = nucleus(probs, ids, sampling.top_p)
    if sampling.min_p > 0.0:
        pool = np.arange(len(probs)) if ids is None else ids
        ids = pool[probs[pool] >= sampling.min_p]
    return ids


def index_at(weights: Row, point: float) -> int:
    """The index at `point` (0 to 1) of the total of positive or zero weights."""
    # By blocks: a running sum over a whole vocabulary would cost a millisecond.
    sums = np.cumsum(np.add.reduceat(weights, np.arange(0, len(weights), BLOCK)), dtype=np.float64)
    target = point * float(sums[-1])
    block = min(int(np.searchsorted(sums, target, side="right")), len(sums) - 1)
    start = block * BLOCK
    inside = np.cumsum(weights[start : start + BLOCK], dtype=np.float64)
    before = float(sums[block - 1]) if block else 0.0
    # Rounding may put the target just behind the block; its last weight that counts is meant then.
    last = int(np.searchsorted(inside, inside[-1]))
    return start + min(int(np.searchsorted(inside, target - before, side="right")), last)


class Sampler:
    """Picks the tokens of one request, with its own seeded generator."""

    def __init__(self, sampling: Sampling, prompt: Sequence[int]) -> None:
        self._sampling = sampling
        self._temperature = np.float32(max(sampling.temperature, LEAST_TEMPERATURE))
        penalised = (
            sampling.repetition_penalty != 1.0
            or sampling.frequency_penalty != 0.0
            or sampling.presence_penalty != 0.0
        )
        self._penalties = Penalties(sampling, prompt) if penalised else None
        self._random = None if sampling.greedy else np.random.Generator(np.random.Philox(sampling.seed))

    def pick(self, logits: Row) -> int:
        """The next token for logits of shape [vocab_size], which are not changed.

        Raises ArithmeticError when the largest score is not a finite number.
        """
        if self._penalties is None:
            return self._choose(logits)
        token = self._choose(self._penalties.apply(logits))
        self._penalties.note(token)
        return token

    def _choose(self, logits: Row) -> int:
        best = int(logits.argmax())
        if not math.isfinite(logits.item(best)):
            raise ArithmeticError("the model's scores are not numbers")
        if self._random is None:
            return best
        probs = np.exp((logits - logits[best]) / self._temperature)
        ids = candidates(probs, self._sampling)
        place = index_at(probs if ids is None else probs[ids], self._random.random())
        return place if ids is None else int(ids[place])
