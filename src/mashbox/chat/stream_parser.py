"""From the engine's text to chat events, a piece at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from mashbox.chat.types import ChatEvent, Text


class StreamParser(Protocol):
    """Reads one answer. Text may be held back until it is clear what it is."""

    def feed(self, text: str) -> Sequence[ChatEvent]:
        """The events that are certain after `text`."""
        ...

    def finish(self) -> Sequence[ChatEvent]:
        """What was held back, once no more text comes."""
        ...


class PlainText:
    """The parser of answers that are nothing but text."""

    def feed(self, text: str) -> Sequence[ChatEvent]:
        return (Text(text),)

    def finish(self) -> Sequence[ChatEvent]:
        return ()
