"""From pairs of measurements to medians, quartiles and a table. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pair:
    """One measurement of each side, taken one right after the other."""

    ours: float
    peer: float

    @property
    def ratio(self) -> float:
        """Ours relative to the peer's."""
        return self.ours / self.peer


@dataclass(frozen=True, slots=True)
class Quartiles:
    """The middle half of some values."""

    lower: float
    median: float
    upper: float


@dataclass(frozen=True, slots=True)
class Row:
    """One scenario's outcome."""

    title: str
    unit: str
    more_is_better: bool
    pairs: tuple[Pair, ...]

    @property
    def ours(self) -> Quartiles:
        """Our own values."""
        return quartiles([pair.ours for pair in self.pairs])

    @property
    def peer(self) -> Quartiles:
        """The peer's values."""
        return quartiles([pair.peer for pair in self.pairs])

    @property
    def ratio(self) -> Quartiles:
        """Ours relative to the peer's, pair by pair, so that slow drift of the machine cancels out."""
        return quartiles([pair.ratio for pair in self.pairs])


def quartiles(values: Sequence[float]) -> Quartiles:
    """Quartiles with linear interpolation between the values, which are taken as the whole population."""
    if len(values) == 1:
        return Quartiles(values[0], values[0], values[0])
    lower, median, upper = statistics.quantiles(values, n=4, method="inclusive")
    return Quartiles(lower, median, upper)


def table(rows: Sequence[Row], names: tuple[str, str]) -> str:
    """The rows as a Markdown table: raw medians, then the ratio's median and quartiles.

    `names` are the sides', ours first.
    """
    ours, peer = names
    lines = [
        f"| measured | unit | {ours} | {peer} | {ours} / {peer} | quartiles | better is |",
        "|---|---|---:|---:|---:|---|---|",
    ]
    for row in rows:
        ratio = row.ratio
        cells = [
            row.title,
            row.unit,
            number(row.ours.median),
            number(row.peer.median),
            f"{ratio.median:.3f}",
            f"{ratio.lower:.3f} - {ratio.upper:.3f}",
            "more" if row.more_is_better else "less",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def number(value: float) -> str:
    """Three significant digits, or whole numbers from 1,000 up."""
    if value >= 1000:
        return f"{value:,.0f}"
    decimals = 1 if value >= 10 else 2 if value >= 1 else 3
    return f"{value:.{decimals}f}"
