"""Choose the next token from one row of logits. Pure: the same seed, logits and settings, the same token.

Order: repetition, frequency and presence penalties, then temperature, top_k, top_p, min_p, then the draw.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from mashbox.engine.types import Sampling

Row = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int64]

_COLDEST = 1e-6
"""A temperature below it acts like it: the float32 quotients stay finite, and the best token is drawn."""
_STRONGEST = 1e6
"""A repetition penalty beyond it (or below its inverse) acts like it, for the same reason."""


class Penalties:
    """Lowers the scores of tokens that already came.

    Repetition divides positive and multiplies negative scores of tokens in prompt or output;
    frequency (per occurrence) and presence (once) are subtracted for tokens in the output.
    """

    def __init__(self, sampling: Sampling, prompt: Sequence[int]) -> None:
        self._repetition = min(max(sampling.repetition_penalty, 1 / _STRONGEST), _STRONGEST)
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


def nucleus(probs: Row, ids: Ids | None, top_p: float) -> Ids:
    """The smallest set of most likely tokens that holds `top_p` of the mass, most likely first."""
    pool = np.arange(len(probs)) if ids is None else ids
    weights = probs if ids is None else probs[ids]
    wanted = top_p * float(weights.sum(dtype=np.float64))
    # Sorting a whole vocabulary costs milliseconds: sort only what can be in the set.
    cut = np.float32(1e-2)
    while True:
        likely = np.flatnonzero(weights >= cut * weights.max())
        if cut == 0 or float(weights[likely].sum(dtype=np.float64)) >= wanted:
            break
        cut = np.float32(cut * 1e-2) if cut > 1e-12 else np.float32(0)
    order = likely[np.argsort(-weights[likely], kind="stable")]
    mass = np.cumsum(weights[order], dtype=np.float64)
    return pool[order[: int(np.searchsorted(mass, wanted)) + 1]]


def candidates(probs: Row, sampling: Sampling) -> Ids | None:
    """Tokens that may be drawn, or None for all. `probs` is not normalised: its largest is 1."""
    ids: Ids | None = None
    if 0 < sampling.top_k < len(probs):
        ids = np.argpartition(probs, -sampling.top_k)[-sampling.top_k :]
    if sampling.top_p < 1.0:
        ids = nucleus(probs, ids, sampling.top_p)
    if sampling.min_p > 0.0:
        pool = np.arange(len(probs)) if ids is None else ids
        ids = pool[probs[pool] >= sampling.min_p]
    return ids


class Sampler:
    """Picks the tokens of one request, with its own seeded generator."""

    def __init__(self, sampling: Sampling, prompt: Sequence[int]) -> None:
        self._sampling = sampling
        penalised = (
            sampling.repetition_penalty != 1.0
            or sampling.frequency_penalty != 0.0
            or sampling.presence_penalty != 0.0
        )
        self._penalties = Penalties(sampling, prompt) if penalised else None
        self._temperature = np.float32(max(sampling.temperature, _COLDEST))
        self._random = None if sampling.greedy else np.random.Generator(np.random.Philox(sampling.seed))

    def pick(self, logits: Row) -> int:
        """The next token for logits of shape [vocab_size], which are not changed."""
        if self._penalties is None:
            return self._choose(logits)
        token = self._choose(self._penalties.apply(logits))
        self._penalties.note(token)
        return token

    def _choose(self, logits: Row) -> int:
        if self._random is None:
            return int(logits.argmax())
        probs = np.exp((logits - logits.max()) / self._temperature)
        ids = candidates(probs, self._sampling)
        mass = np.cumsum(probs if ids is None else probs[ids], dtype=np.float64)
        place = int(np.searchsorted(mass, self._random.random() * mass[-1], side="right"))
        place = min(place, len(mass) - 1)
        return place if ids is None else int(ids[place])
