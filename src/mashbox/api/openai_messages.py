"""OpenAI chat messages as neutral ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from mashbox.chat.types import Message
from mashbox.errors import InvalidRequestError

TEXT_PARTS = frozenset({"text", "input_text", "output_text"})


class ContentPart(msgspec.Struct):
    """One part of a message's content; only parts with text are accepted."""

    type: str
    text: str | None = None
    refusal: str | None = None


class ChatMessage(msgspec.Struct):
    """One message of a chat completions request."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[ContentPart] | None = None


def neutral_messages(messages: Sequence[ChatMessage]) -> tuple[Message, ...]:
    """Raises InvalidRequestError naming the part that is not text."""
    return tuple(_neutral(message, f"messages[{i}]") for i, message in enumerate(messages))


def _neutral(message: ChatMessage, where: str) -> Message:
    role = "system" if message.role == "developer" else message.role
    if message.content is None or isinstance(message.content, str):
        return Message(role, message.content or "")
    parts = (part_text(part, f"{where}.content[{i}]") for i, part in enumerate(message.content))
    return Message(role, "\n".join(parts))


def part_text(part: ContentPart, where: str) -> str:
    """The text of a content part found at `where`."""
    if part.type == "refusal":
        text, field = part.refusal, "refusal"
    elif part.type in TEXT_PARTS:
        text, field = part.text, "text"
    else:
        raise InvalidRequestError(
            f"'{where}' is a part of type '{part.type}', but this model reads text only.", param=where
        )
    if text is None:
        raise InvalidRequestError(f"Missing required field '{where}.{field}'.", param=f"{where}.{field}")
    return text
