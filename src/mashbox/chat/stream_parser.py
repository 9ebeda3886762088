"""From the engine's text to chat events, a piece at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from mashbox.chat.formats.cursor import WHITE_SPACE
from mashbox.chat.formats.format import CallReader
from mashbox.chat.types import Call, Text, Thinking
from mashbox.engine.types import TextDelta


class StreamParser(Protocol):
    """Reads one answer. Text may be held back until it is clear what it is."""

    def feed(self, delta: TextDelta) -> Sequence[Thinking | Text | Call]:
        """The events that are certain after `delta`."""
        ...

    def finish(self) -> Sequence[Thinking | Text | Call]:
        """What was held back, once no more text comes."""
        ...


class PlainText:
    """The parser of answers that are nothing but text."""

    def feed(self, delta: TextDelta) -> Sequence[Thinking | Text | Call]:
        return (Text(delta.text),)

    def finish(self) -> Sequence[Thinking | Text | Call]:
        return ()


class AnswerParser:
    """The parser of answers with thinking, with calls, or with both.

    Without a `reader`, what is no thinking is text. Thinking is dropped unless `keep_thinking`.

    White space: around the marks of a thinking block it belongs to them, so a block's own text and
    the text after it are trimmed there. White space before the first block is dropped when there is
    nothing else. All other text comes out byte for byte, but for what the reader gives to its calls.
    """

    def __init__(self, reader: CallReader | None, keep_thinking: bool) -> None:
        self._reader = reader
        self._keep_thinking = keep_thinking
        self._thinking = False
        self._thought = False  # a block has ended
        self._at_start = True  # of the answer, or after a block: nothing but white space so far
        self._space: list[str] = []  # held back: may be trimmed

    def feed(self, delta: TextDelta) -> Sequence[Thinking | Text | Call]:
        """See StreamParser."""
        if not delta.text:
            return ()
        if delta.thinking:
            return [*self._begin_thinking(), *self._think(delta.text)]
        self._end_thinking()
        return self._speak(delta.text)

    def finish(self) -> Sequence[Thinking | Text | Call]:
        """See StreamParser."""
        if self._thinking:
            return ()
        held = "".join(self._space)
        self._space.clear()
        return [*self._read(held), *self._finish_reader()]

    def _begin_thinking(self) -> Sequence[Thinking | Text | Call]:
        if self._thinking:
            return ()
        self._thinking = True
        self._at_start = True
        self._space.clear()
        return self._finish_reader()

    def _think(self, text: str) -> Sequence[Thinking]:
        released = self._release(text)
        return (Thinking(released),) if released and self._keep_thinking else ()

    def _release(self, text: str) -> str:
        """Thinking that is certain not to be at the block's end; white space at its start is gone."""
        if self._at_start:
            text = text.lstrip(WHITE_SPACE)
        body = text.rstrip(WHITE_SPACE)
        if body:
            self._at_start = False
            released = "".join([*self._space, body])
            self._space = [text[len(body) :]]
            return released
        self._space.append(text)
        return ""

    def _end_thinking(self) -> None:
        if self._thinking:
            self._thinking = False
            self._at_start = True
            self._thought = True
            self._space.clear()

    def _speak(self, text: str) -> Sequence[Text | Call]:
        if self._at_start:
            text = text.lstrip(WHITE_SPACE) if self._thought else text
            if not text.strip(WHITE_SPACE):
                self._space.append(text)
                return ()
            self._at_start = False
            text = "".join([*self._space, text])
            self._space.clear()
        return self._read(text)

    def _read(self, text: str) -> Sequence[Text | Call]:
        if not text:
            return ()
        return (Text(text),) if self._reader is None else self._reader.feed(text)

    def _finish_reader(self) -> Sequence[Text | Call]:
        return () if self._reader is None else self._reader.finish()
