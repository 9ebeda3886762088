"""The scenarios: what is asked of a server, and the one number that comes out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from bench.errors import BenchError
from bench.limits import Limits
from bench.load import Ask, Client
from bench.model import Work
from bench.prompts import ENDLESS, fresh_text
from bench.stream import Answer
from mashbox.config import PREFILL_CHUNK

CHUNKS_BEFORE_ARRIVAL = 16
"""How far the running stream is when the long prompt arrives beside it."""


class Scenario(Protocol):
    """Something to measure on both sides. Needs no state: a round's name makes its prompts fresh."""

    @property
    def title(self) -> str: ...

    @property
    def unit(self) -> str: ...

    @property
    def more_is_better(self) -> bool: ...

    def measure(self, client: Client, round_name: str) -> float:
        """One measurement. Rounds of different names share no long prompt."""
        ...

    def ceiling(self, limits: Limits, work: Work) -> float | None:
        """The most this machine allows, in the same unit; None where it sets no limit."""
        ...


@dataclass(frozen=True, slots=True)
class Decode:
    """Tokens per second over all streams, while all of them run."""

    streams: int
    tokens: int
    unit: str = "tokens/s"
    more_is_better: bool = True

    @property
    def title(self) -> str:
        """Heading in reports."""
        return f"decode, {self.streams} stream{'s' if self.streams > 1 else ''}"

    @property
    def asks(self) -> list[Ask]:
        """The same requests in every round."""
        return [Ask(ENDLESS[place % len(ENDLESS)], self.tokens) for place in range(self.streams)]

    def measure(self, client: Client, round_name: str) -> float:
        """Tokens per second from the last stream's first token to the first stream's last one."""
        answers = client.ask_all(self.asks)
        for answer in answers:
            check_complete(answer, self.tokens)
        begin = max(answer.arrivals[0] for answer in answers)
        end = min(answer.arrivals[-1] for answer in answers)
        if begin >= end:
            raise BenchError("The streams did not run at the same time; give them more tokens.")
        tokens = sum(begin < arrival <= end for answer in answers for arrival in answer.arrivals)
        return tokens / (end - begin)

    def ceiling(self, limits: Limits, work: Work) -> float | None:
        """See `Limits.decode_rate`."""
        return limits.decode_rate(work, self.streams)


@dataclass(frozen=True, slots=True)
class Prefill:
    """Prompt tokens per second up to the first new token. `prompt_tokens` is what `words` come to."""

    words: int
    prompt_tokens: int
    unit: str = "tokens/s"
    more_is_better: bool = True

    @property
    def title(self) -> str:
        """Heading in reports."""
        return f"prefill, {self.prompt_tokens} tokens"

    def measure(self, client: Client, round_name: str) -> float:
        """Time of one fresh prompt."""
        answer = client.ask(Ask(fresh_text(self.words, f"prefill {round_name}"), 1))
        check_fresh(answer, self.prompt_tokens)
        return self.prompt_tokens / answer.seconds_to_first

    def ceiling(self, limits: Limits, work: Work) -> float | None:
        """See `Limits.prefill_rate`."""
        return limits.prefill_rate(work, self.prompt_tokens)


@dataclass(frozen=True, slots=True)
class Arrival:
    """How long a running stream is held up when a long prompt arrives beside it.

    Its longest gap, as a part of the time that a prompt of this length takes when it is alone.
    """

    words: int
    tokens: int
    unit: str = "of prefill"
    more_is_better: bool = False

    @property
    def title(self) -> str:
        """Heading in reports."""
        return f"longest gap while {self.words} words arrive"

    def measure(self, client: Client, round_name: str) -> float:
        """The prompt alone, then another one beside a stream."""
        alone = client.ask(Ask(fresh_text(self.words, f"alone {round_name}"), 1)).seconds_to_first
        stream = client.start(Ask(ENDLESS[0], self.tokens))
        client.run(lambda: stream.chunks >= CHUNKS_BEFORE_ARRIVAL)
        arriving = client.start(Ask(fresh_text(self.words, f"beside {round_name}"), 1))
        client.run(lambda: stream.done and arriving.done)
        running, arrived = stream.answer(), arriving.answer()
        check_complete(running, self.tokens)
        if running.arrivals[-1] < arrived.arrivals[0]:
            raise BenchError(
                "The running stream ended before the prompt beside it was read; give it more tokens."
            )
        return running.largest_gap(since=arriving.sent) / alone

    def ceiling(self, limits: Limits, work: Work) -> float | None:
        """None: the gap can be made as small as one likes."""
        return None


def check_complete(answer: Answer, tokens: int) -> None:
    """Raise BenchError unless the answer has exactly so many tokens.

    Where a stream brings no counts, the finish reason "length" says the same.
    """
    if answer.finish_reason != "length" or answer.completion_tokens not in (None, tokens):
        raise BenchError(
            f"An answer was to have {tokens} tokens but ended with {answer.finish_reason!r} after "
            f"{answer.completion_tokens or len(answer.arrivals)}: ...{answer.text[-60:]!r}"
        )


def check_fresh(answer: Answer, prompt_tokens: int) -> None:
    """Raise BenchError when the server says that a cache spared it some of the prompt."""
    # A chat template and the beginning-of-text token are the same in every prompt.
    if (answer.cached_tokens or 0) > max(prompt_tokens // 20, 64):
        raise BenchError(f"{answer.cached_tokens} of {prompt_tokens} prompt tokens came from a cache.")


def check_reused(answer: Answer, shared: int) -> None:
    """Raise BenchError unless a cache spared the server `shared` prompt tokens, the last grid step aside."""
    if answer.cached_tokens is None or answer.cached_tokens <= shared - PREFILL_CHUNK:
        raise BenchError(
            f"{answer.cached_tokens} of {answer.prompt_tokens} prompt tokens came from a cache, although "
            f"it should have had the first {shared}."
        )


@dataclass(frozen=True, slots=True)
class Counts:
    """How a side counts the same work: it must be the same on both."""

    prompt_tokens: int
    completion_tokens: int


def count_tokens(client: Client, asks: Sequence[Ask]) -> list[Counts]:
    """What the server says about each request when it answers in one piece, with its usage."""
    counts = []
    for ask in asks:
        answer = client.ask(replace(ask, stream=False))
        if answer.prompt_tokens is None or answer.completion_tokens is None:
            raise BenchError("A whole answer came without its token counts.")
        counts.append(Counts(answer.prompt_tokens, answer.completion_tokens))
    return counts
