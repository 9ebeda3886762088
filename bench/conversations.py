"""The scenarios of the prompt cache: long prompts that begin like one before them.

Times to first token are those of whole answers of one token: that is the same, and every server says
in them how much of the prompt its cache had.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from bench.limits import Limits
from bench.load import Ask, Client, Turn
from bench.measure import check_fresh, check_reused
from bench.model import Work
from bench.prompts import ENDLESS, fresh_text
from bench.stream import Answer

TAIL_WORDS = 20
"""Words of a session's own, and of each later line of a conversation."""
DISPLACED_TOKENS = 16
"""Length of the answer in the conversation that is returned to."""


@dataclass(frozen=True, slots=True)
class Sessions:
    """How long the last of several new sessions waits, all of which begin with one fresh text.

    In a chat that text is the system prompt. A server that computes it once does so for all.
    """

    sessions: int
    words: int
    unit: str = "s"
    more_is_better: bool = False

    @property
    def title(self) -> str:
        """Heading in reports."""
        return f"last first token of {self.sessions} sessions, {self.words} words shared"

    def measure(self, client: Client, round_name: str) -> float:
        """Seconds from the first request to the last first token."""
        shared = (Turn("system", fresh_text(self.words, f"sessions {round_name}")),)
        tails = [fresh_text(TAIL_WORDS, f"session {place} {round_name}") for place in range(self.sessions)]
        answers = client.ask_all([_ask(shared, tail, 1) for tail in tails])
        self._check(answers, client.must_reuse)
        return max(answer.arrivals[0] for answer in answers) - min(answer.sent for answer in answers)

    def ceiling(self, limits: Limits, work: Work) -> float | None:
        """None: less is better."""
        return None

    def _check(self, answers: list[Answer], must_reuse: bool) -> None:
        """One session computes the shared text, the others need not. A word is at least one token."""
        first, *others = sorted(answers, key=lambda answer: answer.cached_tokens or 0)
        check_fresh(first, first.prompt_tokens or 0)
        if must_reuse:
            for answer in others:
                check_reused(answer, self.words)


@dataclass(frozen=True, slots=True)
class SecondTurn:
    """Time to first token when a conversation goes on: its prompt, its answer and one more line."""

    words: int
    tokens: int
    unit: str = "s"
    more_is_better: bool = False

    @property
    def title(self) -> str:
        """Heading in reports."""
        return f"first token of a second turn, after {self.words} words"

    def measure(self, client: Client, round_name: str) -> float:
        """Seconds of the second turn, which repeats the answer as the server wrote it."""
        # Numbers to go on with, so that there is an answer of some length to come back to.
        prompt = f"{fresh_text(self.words, f'turns {round_name}')}\n{ENDLESS[0]}"
        first = client.ask(Ask(prompt, self.tokens, stream=False))
        check_fresh(first, first.prompt_tokens or 0)
        second = client.ask(_ask(_exchange(prompt, first.text), _line(f"turn {round_name}"), 1))
        if client.must_reuse:
            check_reused(second, first.prompt_tokens or 0)
        return second.seconds_to_first

    def ceiling(self, limits: Limits, work: Work) -> float | None:
        """None: less is better."""
        return None


@dataclass(frozen=True, slots=True)
class Return:
    """Time to first token back in a conversation whose slot others have taken meanwhile.

    As a part of the time that those others took: fresh prompts of the same length, on the same server.
    `others` is at least the number of slots.
    """

    others: int
    words: int
    unit: str = "of cold"
    more_is_better: bool = False

    @property
    def title(self) -> str:
        """Heading in reports."""
        return f"return after {self.others} other conversations of {self.words} words"

    def measure(self, client: Client, round_name: str) -> float:
        """The conversation, then the others one by one, then the conversation again with one more line."""
        prompt = fresh_text(self.words, f"return {round_name}")
        first = client.ask(Ask(prompt, DISPLACED_TOKENS, stream=False))
        check_fresh(first, first.prompt_tokens or 0)
        cold = [
            self._fresh(client, first.text, f"{place} {round_name}").seconds_to_first
            for place in range(self.others)
        ]
        again = client.ask(_ask(_exchange(prompt, first.text), _line(f"again {round_name}"), 1))
        if client.must_reuse:
            check_reused(again, first.prompt_tokens or 0)
        return again.seconds_to_first / statistics.median(cold)

    def ceiling(self, limits: Limits, work: Work) -> float | None:
        """None: less is better."""
        return None

    def _fresh(self, client: Client, answer: str, seed: str) -> Answer:
        """Another conversation of the same shape and length."""
        prompt = fresh_text(self.words, f"other {seed}")
        fresh = client.ask(_ask(_exchange(prompt, answer), _line(f"other line {seed}"), 1))
        check_fresh(fresh, fresh.prompt_tokens or 0)
        return fresh


def _ask(before: tuple[Turn, ...], prompt: str, max_tokens: int) -> Ask:
    return Ask(prompt, max_tokens, stream=False, before=before)


def _exchange(prompt: str, answer: str) -> tuple[Turn, Turn]:
    return Turn("user", prompt), Turn("assistant", answer)


def _line(seed: str) -> str:
    return fresh_text(TAIL_WORDS, seed)
