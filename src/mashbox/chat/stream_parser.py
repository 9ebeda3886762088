"""From the engine's text to chat events, a piece at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

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
