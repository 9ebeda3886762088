"""The scenarios of the prompt cache: what they ask, and what they do not accept as an answer."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest
from bench.conversations import Return, SecondTurn, Sessions
from bench.errors import BenchError
from bench.load import Ask, Route, Turn
from bench.measure import Scenario
from bench.stream import Answer

Cached = Callable[[str, list[str]], int]
"""Cached tokens of a text, by the texts computed before it. A token is a word."""


class Box:
    """Stands in for a client. A request takes 1 ms and 1 ms more for each word that was not cached."""

    def __init__(self, cached: Cached, must_reuse: bool = True) -> None:
        self.must_reuse = must_reuse
        self.seen: list[Ask] = []
        self._cached = cached
        self._clock = 0.0

    def ask(self, ask: Ask) -> Answer:
        return self.ask_all([ask])[0]

    def ask_all(self, asks: Sequence[Ask]) -> list[Answer]:
        sent = self._clock
        return [self._answer(ask, sent) for ask in asks]

    def _answer(self, ask: Ask, sent: float) -> Answer:
        text = ask.text
        cached = self._cached(text, [seen.text for seen in self.seen])
        self.seen.append(ask)
        words = len(text.split())
        self._clock += (1 + words - cached) / 1000
        return Answer(sent, (self._clock,), " 6, 7, 8", "length", words, ask.max_tokens, cached)


def longest(text: str, before: list[str]) -> int:
    """A cache of whole words without any limit."""
    return max((len(_common(text.split(), other.split())) for other in before), default=0)


def nothing(text: str, before: list[str]) -> int:
    return 0


def everything(text: str, before: list[str]) -> int:
    return len(text.split()) - 1


def short_memory(text: str, before: list[str]) -> int:
    return longest(text, before[-1:])


def a_step_less(text: str, before: list[str]) -> int:
    return max(longest(text, before) - 80, 0)


def _common(left: list[str], right: list[str]) -> list[str]:
    pairs = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(left, right, strict=False))
    return [word for word, _ in pairs]


SESSIONS = Sessions(4, 300)
SECOND_TURN = SecondTurn(300, 24)
RETURN = Return(3, 300)


def measure(scenario: Scenario, box: Box) -> float:
    client: Any = box
    return scenario.measure(client, "0")


def test_sessions_end_with_the_last_first_token() -> None:
    box = Box(longest)
    assert measure(SESSIONS, box) == pytest.approx((4 + 300 + 4 * 20) / 1000, abs=0.004)
    assert len({ask.before for ask in box.seen}) == 1
    assert len({ask.prompt for ask in box.seen}) == 4
    assert {ask.max_tokens for ask in box.seen} == {1}


def test_a_second_turn_repeats_the_answer_as_it_was() -> None:
    box = Box(longest)
    seconds = measure(SECOND_TURN, box)
    first, second = box.seen
    assert second.text.startswith(f"{first.text} 6, 7, 8\n")
    assert second.before == (Turn("user", first.prompt), Turn("assistant", " 6, 7, 8"))
    assert seconds == pytest.approx((1 + 3 + 20) / 1000)


def test_a_return_is_measured_against_the_others() -> None:
    box = Box(longest)
    share = measure(RETURN, box)
    first, *others, again = box.seen
    assert len(others) == 3
    assert again.text.startswith(first.text)
    assert {len(ask.text.split()) for ask in others} == {len(again.text.split())}
    assert share == pytest.approx((1 + 3 + 20) / (1 + 300 + 3 + 20), rel=0.05)


@pytest.mark.parametrize("scenario", [SESSIONS, SECOND_TURN, RETURN], ids=lambda scenario: scenario.unit)
@pytest.mark.parametrize("cached", [nothing, a_step_less])
def test_what_should_have_been_reused(scenario: Scenario, cached: Cached) -> None:
    with pytest.raises(BenchError, match="although it should have had the first 30"):
        measure(scenario, Box(cached))
    assert measure(scenario, Box(cached, must_reuse=False)) > 0


def test_a_displaced_conversation_must_come_back() -> None:
    with pytest.raises(BenchError, match="should have had"):
        measure(RETURN, Box(short_memory))


@pytest.mark.parametrize("must_reuse", [True, False])
@pytest.mark.parametrize("scenario", [SESSIONS, SECOND_TURN, RETURN], ids=lambda scenario: scenario.unit)
def test_fresh_texts_must_not_be_cached_on_either_side(scenario: Scenario, must_reuse: bool) -> None:
    with pytest.raises(BenchError, match="came from a cache"):
        measure(scenario, Box(everything, must_reuse))


def test_rounds_share_nothing() -> None:
    box = Box(longest)
    client: Any = box
    for name in ("0", "1"):
        for scenario in (SESSIONS, SECOND_TURN, RETURN):
            scenario.measure(client, name)


CONVERSATION = Ask(
    "bye", 1, before=(Turn("system", "be brief"), Turn("user", "hi"), Turn("assistant", " ho"))
)


@pytest.mark.parametrize(
    ("route", "field", "value"),
    [
        (Route.COMPLETIONS, "prompt", "be brief\nhi ho\nbye"),
        (
            Route.CHAT,
            "messages",
            [
                {"role": "system", "content": "be brief"},
                {"role": "user", "content": "hi"},
                {"role": "assistant", "content": " ho"},
                {"role": "user", "content": "bye"},
            ],
        ),
    ],
)
def test_a_conversation_on_both_routes(route: Route, field: str, value: object) -> None:
    head, _, body = CONVERSATION.encode(route).partition(b"\r\n\r\n")
    assert msgspec.json.decode(body)[field] == value
    assert f"Content-Length: {len(body)}".encode() in head
