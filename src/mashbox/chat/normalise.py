"""Shapes a conversation so that the model's template takes it. The one place where that happens.

Many templates refuse or silently drop what clients send: a second system message, two user messages
in a row, an answer first. `TemplateTraits` says what the template can do; what it can is left alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import groupby

from mashbox.chat.types import Message

CONTINUE = "Continue."
"""The user's text after a conversation that ends with the assistant, where the template wants one."""


class SystemPlace(Enum):
    """Where a template shows system messages."""

    ANYWHERE = "anywhere"  # also several, also between or after other messages
    FIRST = "first"  # one, at the start
    NOWHERE = "nowhere"


@dataclass(frozen=True, slots=True)
class TemplateTraits:
    """What a template takes. The defaults are those of an easy-going one."""

    system: SystemPlace = SystemPlace.ANYWHERE
    system_alone: bool = True
    """A conversation of nothing but a system message."""
    repeated_roles: bool = True
    """Several user or assistant messages in a row."""
    assistant_first: bool = True
    assistant_last: bool = True
    empty_assistant: bool = True
    """An assistant message with empty content."""
    tool_role: bool = True
    content_parts: bool = False
    """Content must be a list of parts, not a string. Does not change `normalise`."""


def normalise(messages: Sequence[Message], traits: TemplateTraits) -> tuple[Message, ...]:
    """The same conversation in a form the template takes.

    - A tool result becomes a user message if the template does not show the tool role.
    - An empty answer is left out if the template does not take one.
    - System messages are joined into one at the start, or into the first user message, as needed.
    - Messages of the same role in a row are joined if roles must alternate.
    - A user message is put before an answer that stands first, and after one that stands last,
      if the template does not take that.

    Joined texts are parted by a blank line; empty ones are left out of a joint text.
    """
    conversation = [_own_role(message, traits) for message in messages]
    if not traits.empty_assistant:
        conversation = [m for m in conversation if m.role != "assistant" or m.content.strip()]
    conversation = _place_system(conversation, traits)
    if not traits.assistant_first:
        conversation = _user_first(conversation)
    if not traits.repeated_roles:
        conversation = _merge_repeated(conversation)
    if not traits.assistant_last and conversation and conversation[-1].role == "assistant":
        conversation.append(Message("user", CONTINUE))
    return tuple(conversation)


def _own_role(message: Message, traits: TemplateTraits) -> Message:
    if message.role == "tool" and not traits.tool_role:
        return replace(message, role="user")
    return message


def _place_system(messages: list[Message], traits: TemplateTraits) -> list[Message]:
    system = [message for message in messages if message.role == "system"]
    others = [message for message in messages if message.role != "system"]
    if not system:
        return messages
    if not others and not traits.system_alone:
        return [Message("user", _joined(system))]
    if traits.system is SystemPlace.ANYWHERE:
        return messages
    if traits.system is SystemPlace.FIRST:
        return [Message("system", _joined(system)), *others]
    if not any(message.content.strip() for message in system):
        return others
    if others and others[0].role == "user":
        return [Message("user", _joined([*system, others[0]])), *others[1:]]
    return [Message("user", _joined(system)), *others]


def _user_first(messages: list[Message]) -> list[Message]:
    start = next((i for i, message in enumerate(messages) if message.role != "system"), None)
    if start is None or messages[start].role != "assistant":
        return messages
    return [*messages[:start], Message("user", ""), *messages[start:]]


def _merge_repeated(messages: list[Message]) -> list[Message]:
    merged: list[Message] = []
    for role, group in groupby(messages, key=lambda message: message.role):
        run = list(group)
        if role in ("user", "assistant") and len(run) > 1:
            run = [replace(run[-1], content=_joined(run))]
        merged.extend(run)
    return merged


def _joined(messages: Sequence[Message]) -> str:
    return "\n\n".join(message.content for message in messages if message.content.strip())
