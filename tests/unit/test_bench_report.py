"""Statistics and tables of the benchmark."""

from __future__ import annotations

import pytest
from bench.report import Pair, Quartiles, Row, number, quartiles, table
from hypothesis import given
from hypothesis import strategies as st

NAMES = ("ours", "other")
_positive = st.floats(min_value=1e-3, max_value=1e6)


def test_quartiles_interpolate() -> None:
    assert quartiles([4.0, 1.0, 3.0, 2.0]) == Quartiles(1.75, 2.5, 3.25)


def test_quartiles_of_one_value() -> None:
    assert quartiles([7.0]) == Quartiles(7.0, 7.0, 7.0)


@given(st.lists(_positive, min_size=1, max_size=30))
def test_quartiles_are_ordered_and_inside(values: list[float]) -> None:
    found = quartiles(values)
    slack = 1e-9 * max(values)
    assert min(values) - slack <= found.lower <= found.median + slack
    assert found.median <= found.upper + slack <= max(values) + 2 * slack


@given(st.lists(_positive, min_size=1, max_size=15), st.floats(min_value=0.1, max_value=10))
def test_ratio_ignores_drift_that_hits_both_sides(speeds: list[float], factor: float) -> None:
    row = Row("decode", "tokens/s", True, tuple(Pair(ours=speed * factor, peer=speed) for speed in speeds))
    assert row.ratio.lower == pytest.approx(factor)
    assert row.ratio.upper == pytest.approx(factor)


def test_table_shows_medians_and_the_ratios_quartiles() -> None:
    pairs = (Pair(90.0, 100.0), Pair(110.0, 100.0), Pair(100.0, 50.0))
    last = table([Row("decode, 4 streams", "tokens/s", True, pairs)], NAMES).splitlines()[-1]
    assert last == "| decode, 4 streams | tokens/s | 100.0 | 100.0 | 1.100 | 1.000 - 1.550 | more |"


def test_table_says_when_less_is_better() -> None:
    last = table([Row("gap", "of prefill", False, (Pair(0.05, 1.0),))], NAMES).splitlines()[-1]
    assert last.endswith("| less |")


@pytest.mark.parametrize(
    ("value", "shown"), [(0.0412, "0.041"), (1.234, "1.23"), (61.27, "61.3"), (1234.5, "1,234")]
)
def test_number(value: float, shown: str) -> None:
    assert number(value) == shown
