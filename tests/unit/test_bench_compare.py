"""The order of measurements, and the model's work."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
from bench import compare as compare_module
from bench.compare import Side, compare
from bench.errors import BenchError
from bench.limits import Limits
from bench.model import Work
from bench.prompts import fresh_text
from bench.report import Pair


class Named:
    """Stands in for a server and its client: only the name matters here."""

    def __init__(self, name: str) -> None:
        self.name = name


class Recorder:
    """A scenario that notes who is measured when."""

    title, unit, more_is_better = "turns", "turns", True

    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []

    def measure(self, client: Any, round_name: str) -> float:
        self.seen.append((client.name, round_name))
        return 10.0 if client.name == "ours" else 20.0

    def ceiling(self, limits: Limits, work: Work) -> float | None:
        return None


class Broken(Recorder):
    """A scenario that fails."""

    def measure(self, client: Any, round_name: str) -> float:
        raise BenchError("too few tokens")


@pytest.fixture
def sides(monkeypatch: pytest.MonkeyPatch) -> tuple[Side, Side]:
    monkeypatch.setattr(compare_module, "SETTLE_S", 0.0)
    ours: Any = Named("ours")
    peer: Any = Named("peer")
    return Side(ours, ours), Side(peer, peer)


def test_sides_alternate_and_swap(sides: tuple[Side, Side]) -> None:
    scenario = Recorder()
    said: list[str] = []
    starts: list[bool] = []

    def start(ours_first: bool) -> AbstractContextManager[tuple[Side, Side]]:
        starts.append(ours_first)
        return nullcontext(sides)

    (row,) = compare([scenario], start, pairs=3, say=said.append)
    assert starts == [True, False, True]
    order = [name for name, _ in scenario.seen]
    assert order == ["ours", "peer", "peer", "ours", "ours", "peer"]
    assert [name for _, name in scenario.seen] == ["0", "0", "1", "1", "2", "2"]
    assert row.pairs == (Pair(10.0, 20.0),) * 3
    assert len(said) == 3


def test_errors_name_the_side_and_the_scenario(sides: tuple[Side, Side]) -> None:
    with pytest.raises(BenchError, match="ours, turns: too few tokens"):
        compare([Broken()], lambda ours_first: nullcontext(sides), pairs=1, say=lambda line: None)


WORK = Work(weight_bytes=1000, parameters=100, vocab=10, width=4, layers=2, attention_width=4, tied=True)
LIMITS = Limits(read_bytes=1e5, f32_flops=1e5, int8_flops=2e5)


def test_decode_is_limited_by_reading_first_and_multiplying_later() -> None:
    # Reading takes 10 ms a step; multiplying 1 ms per stream.
    assert LIMITS.decode_rate(WORK, 1) == pytest.approx(100)
    assert LIMITS.decode_rate(WORK, 8) == pytest.approx(800)
    assert LIMITS.decode_rate(WORK, 20) == pytest.approx(1000)


def test_an_embedding_table_of_its_own_is_not_read() -> None:
    untied = Work(1000, 100, vocab=10, width=4, layers=2, attention_width=4, tied=False)
    assert WORK.bytes_per_step == 1000
    assert untied.bytes_per_step == pytest.approx(600)
    assert untied.prefill_flops(1) == 2 * 20 + 16 + 80


def test_prefill_counts_attention_and_one_output_row() -> None:
    assert WORK.prefill_flops(10) == 2 * 60 * 10 + 2 * 2 * 4 * 100 + 2 * 40


def test_fresh_texts_have_the_same_words_in_another_order() -> None:
    first, second = fresh_text(1500, "prefill 1").split(), fresh_text(1500, "prefill 2").split()
    assert len(first) == 1500
    assert sorted(first) == sorted(second)
    assert first[:3] != second[:3]
    assert fresh_text(1500, "prefill 1").split() == first
