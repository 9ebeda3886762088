"""Which scenarios there are, by the names that `--only` takes, and how much work each one is."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import Enum

from bench.conversations import Return, SecondTurn, Sessions
from bench.errors import BenchError
from bench.load import Ask, Client, Turn
from bench.measure import Arrival, Decode, Prefill, Scenario, count_tokens
from bench.prompts import ENDLESS, fresh_text


class Part(Enum):
    """A part of the benchmark that can be run by itself."""

    DECODE = "decode"
    PREFILL = "prefill"
    ARRIVAL = "arrival"
    SESSIONS = "sessions"
    SECOND_TURN = "second-turn"
    RETURN = "return"
    LOOKUP = "lookup"
    SHARE = "share"


NO_PEER = frozenset({Part.LOOKUP, Part.SHARE})
"""Parts that measure our own code by itself, without a server."""
SPEED = frozenset({Part.DECODE, Part.PREFILL})
"""What exact mode may cost."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much work each scenario is. `pairs` is how often each side is measured."""

    pairs: int
    streams: tuple[int, ...]
    decode_tokens: int
    prefill_words: int
    arriving_words: int
    running_tokens: int
    sessions: int
    cached_words: int
    """Length of the prompts that are used again."""
    answer_tokens: int
    states: int
    """Saved states in the index whose lookup is measured."""
    state_tokens: int


FULL = Sizes(
    pairs=10,
    streams=(1, 4, 8),
    decode_tokens=128,
    prefill_words=2000,
    arriving_words=1500,
    running_tokens=192,
    sessions=8,
    cached_words=1500,
    answer_tokens=64,
    states=1000,
    state_tokens=4000,
)
QUICK = Sizes(
    pairs=1,
    streams=(1, 8),
    decode_tokens=48,
    prefill_words=500,
    arriving_words=500,
    running_tokens=96,
    sessions=4,
    cached_words=300,
    answer_tokens=24,
    states=100,
    state_tokens=1000,
)


def build(parts: Collection[Part], sizes: Sizes, slots: int, prompt_tokens: int) -> list[Scenario]:
    """The scenarios of these parts that run on servers, in the order they run.

    `prompt_tokens` is what the words of the prefill come to.
    """
    return [scenario for part, scenario in _all(sizes, slots, prompt_tokens) if part in parts]


def _all(sizes: Sizes, slots: int, prompt_tokens: int) -> Iterator[tuple[Part, Scenario]]:
    for streams in sizes.streams:
        yield Part.DECODE, Decode(streams, sizes.decode_tokens)
    yield Part.PREFILL, Prefill(sizes.prefill_words, prompt_tokens)
    yield Part.ARRIVAL, Arrival(sizes.arriving_words, sizes.running_tokens)
    yield Part.SESSIONS, Sessions(sizes.sessions, sizes.cached_words)
    yield Part.SECOND_TURN, SecondTurn(sizes.cached_words, sizes.answer_tokens)
    yield Part.RETURN, Return(slots, sizes.cached_words)


def check_counts(left: Client, right: Client, sizes: Sizes) -> int:
    """What the words of the prefill come to in tokens.

    Raises BenchError unless both servers count the same tokens in the same requests.
    """
    answered = (Turn("system", "Count."), Turn("user", ENDLESS[1]), Turn("assistant", " 10, 12,"))
    asks = [
        Ask(fresh_text(sizes.prefill_words, "count"), 1),
        Ask(ENDLESS[0], 1, before=answered),
        *Decode(max(sizes.streams), sizes.decode_tokens).asks,
    ]
    counts, others = count_tokens(left, asks), count_tokens(right, asks)
    if counts != others:
        raise BenchError(f"The two sides count differently: {counts} and {others}.")
    return counts[0].prompt_tokens
