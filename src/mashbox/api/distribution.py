"""How a quantity is distributed, counted in buckets."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate

SECONDS = tuple(step * 10**power for power in range(-3, 4) for step in (1, 2.5, 5))
"""From 1 ms to 5,000 s: short enough for a token, long enough for a whole answer."""

TOKENS = tuple(step * 10**power for power in range(6) for step in (1, 2, 5))
"""From 1 to 500,000 tokens."""


class Distribution:
    """Counts values up to each of `bounds` (ascending), and above the last.

    Values may come many at a time, and there is no time of creation, hence not the library's own.
    """

    def __init__(self, bounds: tuple[float, ...] = SECONDS) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """Count `value`, `times` times over."""
        self._counts[bisect_left(self._bounds, value)] += times
        self.sum += value * times

    def buckets(self) -> list[tuple[str, float]]:
        """How many values were at most each bound; the last bound is infinite."""
        names = [str(float(bound)) for bound in self._bounds] + ["+Inf"]
        return list(zip(names, accumulate(self._counts), strict=True))
