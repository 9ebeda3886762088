"""Thinking told apart from text, as a model's tokens come in.

Pure. The result does not depend on how the bytes were cut into tokens.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Sequence

from mashbox.engine.text import StopMatcher, TextAssembler
from mashbox.engine.types import Reasoning

Part = tuple[str, bool]
"""A run of text, and whether it is thinking; no part that comes out is empty."""


class AnswerText:
    """Turns token bytes into thinking and text that may be shown.

    Marks never come out, wherever they stand; what may become one is held back. Stop strings are
    looked for in the text between two marks. Without `reasoning` everything is text.

    With `begin_constraint` the first closer ends all thinking: what follows it in the same token comes
    out if `begin_constraint` takes it, and marks are text from then on.
    """

    def __init__(
        self,
        stops: Sequence[str] = (),
        reasoning: Reasoning | None = None,
        begin_constraint: Callable[[str], bool] | None = None,
    ) -> None:
        self._visible = TextAssembler(stops)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._reasoning = reasoning
        self._begin_constraint = begin_constraint
        self._held = ""
        marks = [mark for mark in (reasoning.opener, reasoning.closer) if mark] if reasoning else []
        self._marks = StopMatcher(marks)
        self.thinking = reasoning is not None and reasoning.inside

    @property
    def stop(self) -> str | None:
        """The stop string that has ended the answer."""
        return self._visible.stop

    def feed(self, piece: bytes) -> list[Part]:
        """What the next token's bytes release."""
        if self._reasoning is None:
            text = self._visible.feed(piece)
            return [(text, False)] if text else []
        return self._split(self._decoder.decode(piece))

    def flush(self) -> list[Part]:
        """The tail, once, when generation ended for another reason than a stop string."""
        if self._reasoning is None:
            return _parts([(self._visible.flush(), False)])
        shown = self._split(self._decoder.decode(b"", final=True))
        held, self._held = self._held, ""
        return _parts([*shown, self._show(held), (self._visible.interrupt(), False)])

    def _split(self, text: str) -> list[Part]:
        shown: list[Part] = []
        while self._reasoning is not None and (found := self._marks.feed(text)) is not None:
            read, mark = found
            before = (self._held + text[:read]).removesuffix(mark)
            shown += [self._show(before), (self._visible.interrupt(), False)]
            self._held, text = "", self._pass(mark, text[read:])
        text = self._held + text
        keep = len(text) - self._marks.held
        self._held = text[keep:]
        return _parts([*shown, self._show(text[:keep])])

    def _show(self, text: str) -> Part:
        if self.thinking:
            return ("" if self.stop is not None else text, True)
        return (self._visible.read(text), False)

    def _pass(self, mark: str, rest: str) -> str:
        """Behind a mark; returns what is left to read of the token's text."""
        assert self._reasoning is not None
        opens = mark == self._reasoning.opener
        # A model may have one mark for both.
        self.thinking = opens and not (self.thinking and mark == self._reasoning.closer)
        if self._begin_constraint is None or self.thinking:
            return rest
        self._reasoning = None
        return rest if self._begin_constraint(rest) else ""


def _parts(shown: Sequence[Part]) -> list[Part]:
    """Neighbours of one kind together, empty ones left out."""
    parts: list[Part] = []
    for text, thinking in shown:
        if text and parts and parts[-1][1] == thinking:
            parts[-1] = (parts[-1][0] + text, thinking)
        elif text:
            parts.append((text, thinking))
    return parts
