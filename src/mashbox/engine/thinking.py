"""Thinking told apart from text, as a model's tokens come in.

Pure. The result does not depend on how the bytes were cut into tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mashbox.engine.text import StopMatcher, TextAssembler, Utf8
from mashbox.engine.types import Reasoning

WHITE_SPACE = " \t\r\n"

Part = tuple[str, bool]
"""A run of text, and whether it is thinking; no part that comes out is empty."""


class AnswerText:
    """Turns token bytes into thinking and text that may be shown.

    Marks that count (see `Reasoning`) never come out; what may become one is held back. Stop strings are
    looked for in the text between two marks, and white space right after a closer is the closer's.
    Without `reasoning` everything is text.

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
        self._decoder = Utf8()
        self._reasoning = reasoning
        self._begin_constraint = begin_constraint
        self._held = ""
        marks = [reasoning.opener, reasoning.closer, *reasoning.calls] if reasoning else []
        self._marks = StopMatcher([mark for mark in marks if mark])
        self._looking = bool(marks)
        self._line = ""  # what is shown of the line so far, or a stand-in for what is not white space
        self._silent = True  # nothing but white space since the start or the last block
        self.thinking = reasoning is not None and reasoning.inside
        self._after_closer = False

    @property
    def stop(self) -> str | None:
        """The stop string that has ended the answer."""
        return self._visible.stop

    @property
    def in_mark(self) -> bool:
        """The text so far may end with the beginning of a mark."""
        return bool(self._held)

    def feed(self, piece: bytes) -> list[Part]:
        """What the next token's bytes release."""
        if self._reasoning is None:
            text = self._visible.feed(piece)
            return [(text, False)] if text else []
        return self._split(self._decoder.feed(piece))

    def flush(self) -> list[Part]:
        """The tail, once, when generation ended for another reason than a stop string."""
        if self._reasoning is None:
            return _parts([(self._visible.flush(), False)])
        shown = self._split(self._decoder.flush())
        held, self._held = self._held, ""
        return _parts([*shown, self._show(held), (self._visible.interrupt(), False)])

    def _split(self, text: str) -> list[Part]:
        shown: list[Part] = []
        while self._looking and (found := self._marks.feed(text)) is not None:
            read, mark = found
            before = (self._held + text[:read]).removesuffix(mark)
            self._held, text = "", text[read:]
            shown.append(self._show(before))
            if self._counts(mark):
                shown.append((self._visible.interrupt(), False))
                text = self._pass(mark, text)
            else:
                shown.append(self._show(mark))
        text = self._held + text
        keep = len(text) - self._marks.held
        self._held = text[keep:]
        return _parts([*shown, self._show(text[:keep])])

    def _show(self, text: str) -> Part:
        if self.thinking:
            return ("" if self.stop is not None else text, True)
        if self._after_closer:
            text = text.lstrip(WHITE_SPACE)
            self._after_closer = not text
        self._note(text)
        return (self._visible.read(text), False)

    def _note(self, text: str) -> None:
        """Remember where the text stands."""
        line = text.rpartition("\n")[2] if "\n" in text else self._line + text
        self._line = line.strip(WHITE_SPACE)[:1]
        self._silent = self._silent and not text.strip(WHITE_SPACE)

    def _counts(self, mark: str) -> bool:
        """Whether a mark is one here, and not a piece of text that looks like it."""
        assert self._reasoning is not None
        if mark in self._reasoning.calls:
            self._looking = self.thinking
            return False
        if self.thinking or self._reasoning.anywhere:
            return True
        return not self._line if mark == self._reasoning.opener else self._silent

    def _pass(self, mark: str, rest: str) -> str:
        """Behind a mark; returns what is left to read of the token's text."""
        assert self._reasoning is not None
        opens = mark == self._reasoning.opener
        # A model may have one mark for both.
        was_thinking = self.thinking
        self.thinking = opens and not (was_thinking and mark == self._reasoning.closer)
        self._line, self._silent = "", True
        self._after_closer = was_thinking and not self.thinking
        if self._begin_constraint is None or self.thinking:
            return rest
        self._looking = False
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
