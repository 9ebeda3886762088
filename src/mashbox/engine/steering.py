"""What is chosen in the model's place or kept from it: the end of spent thinking, and a grammar."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from mashbox.engine.backend import Logits
from mashbox.engine.constraint import MOST_GAP, Bits, Matcher
from mashbox.engine.sampling import Sampler


@dataclass(frozen=True, slots=True)
class Closing:
    """The tokens that close a thinking block, and after how many tokens of thinking they must come."""

    tokens: Sequence[int]
    budget: int | None

    def is_due(self, spent: int, in_mark: bool) -> bool:
        """Whether the block must be closed now. The model may finish a mark that it has begun."""
        if self.budget is None or spent < self.budget:
            return False
        return not in_mark or spent >= self.budget + len(self.tokens)


@dataclass(frozen=True, slots=True)
class Guard:
    """A request's grammar, the tokens that are nothing but white space, and those that end a turn."""

    matcher: Matcher
    white: Bits
    ends: frozenset[int]


class Steering:
    """Picks the tokens of one request that has a budget or a grammar.

    The grammar rests while the model thinks. With `waits` it begins after a thinking block, and a little
    white space may come first, which is no part of it.
    """

    def __init__(self, closing: Closing | None, guard: Guard | None, waits: bool = False) -> None:
        self._closing = closing
        self._guard = guard
        self._gap = MOST_GAP if waits else 0
        self._forced: deque[int] = deque()

    def pick(self, sampler: Sampler, logits: Logits, thinking: bool, spent: int, in_mark: bool) -> int:
        """The next token; `spent` tokens of thinking came so far, and the last may have begun a mark.

        Raises RuntimeError when the grammar's matcher fails, ArithmeticError like the sampler.
        """
        closing = self._closing
        if closing is not None and thinking and closing.is_due(spent, in_mark):
            self._close(closing)
        if self._forced:
            return self._forced.popleft()
        if not thinking and self._guard is not None:
            return self._pick_guarded(self._guard, sampler, logits)
        token = sampler.pick(logits)
        if closing is not None and self._guard is not None and token in self._guard.ends:
            # The turn must not end before the grammar is fulfilled, so only the thinking does.
            self._close(closing)
            return self._forced.popleft()
        return token

    def _close(self, closing: Closing) -> None:
        if not self._forced:
            self._forced.extend(closing.tokens)
            self._gap = 0

    def _pick_guarded(self, guard: Guard, sampler: Sampler, logits: Logits) -> int:
        if not self._gap:
            token = sampler.pick(guard.matcher.mask(logits))
            guard.matcher.consume(token)
            return token
        token = sampler.pick(guard.matcher.mask(logits, guard.white))
        self._gap = 0 if guard.matcher.takes(token) else self._gap - 1
        return token

    def begin(self, text: str) -> bool:
        """The thinking has ended within a token that goes on with `text`: is it part of the answer?"""
        taken = bool(text) and self._guard is not None and self._guard.matcher.take_text(text)
        if taken:
            self._gap = 0
        return taken

    @property
    def complete(self) -> bool:
        """The grammar is fulfilled and nothing more may come."""
        return self._guard is not None and not self._forced and self._guard.matcher.stopped
