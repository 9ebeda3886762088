"""What one model family's tool-call format must give. One small module per family implements it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from mashbox.chat.types import Call, Text, Tool, ToolChoice
from mashbox.engine.types import Constraint


class CallReader(Protocol):
    """Reads one answer's text without its thinking; linear in the text, and any cut gives the same events.

    Text that may begin a call is held back. What turns out not to be a well-formed call of one of the
    tools comes out as the very text it was. White space next to a call belongs to the call and is
    dropped; all other text comes out as it is.
    """

    def feed(self, text: str) -> Sequence[Text | Call]:
        """The events that are certain after `text`."""
        ...

    def finish(self) -> Sequence[Text | Call]:
        """What was held back, once no more text comes. Text fed after that begins anew."""
        ...


class ToolFormat(Protocol):
    """How one model family writes tool calls. Has no state of an answer."""

    @property
    def name(self) -> str:
        """What --tool-format calls it."""
        ...

    @property
    def visible(self) -> tuple[str, ...]:
        """Control tokens the reader must see in the text, where the model has them."""
        ...

    @property
    def openers(self) -> tuple[str, ...]:
        """What begins a call where it may stand anywhere in a text."""
        ...

    @property
    def always(self) -> bool:
        """Every answer needs the reader, also without tools: its text has marks that are not to be shown."""
        ...

    def reader(self, tools: Sequence[Tool]) -> CallReader:
        """A reader for one answer; the schemas tell what type an untyped value has."""
        ...

    def constraint(self, tools: Sequence[Tool], choice: ToolChoice) -> Constraint:
        """Grammars of an answer that is nothing but the calls `choice` asks for ("required")."""
        ...
