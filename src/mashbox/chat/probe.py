"""Finds out what a template takes, by rendering a few small conversations with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mashbox.chat.normalise import SystemPlace, TemplateTraits
from mashbox.chat.types import Message
from mashbox.errors import InvalidRequestError

Render = Callable[[Sequence[Message], bool], str]
"""Renders messages as they are, content as parts if True. Raises InvalidRequestError."""

_SYSTEM = ("sysprobe alpha", "sysprobe beta", "sysprobe gamma")
_USER = ("userprobe delta", "userprobe epsilon")
_ASSISTANT = ("replyprobe zeta", "replyprobe eta")
_TOOL = "toolprobe theta"


def find_traits(render: Render) -> TemplateTraits:
    """What the template behind `render` takes: it must neither refuse a conversation nor drop a text."""
    user, user2 = (Message("user", text) for text in _USER)
    answer, answer2 = (Message("assistant", text) for text in _ASSISTANT)
    parts = not _shows(render, False, user) and _shows(render, True, user)

    def takes(*messages: Message) -> bool:
        return _shows(render, parts, *messages)

    return TemplateTraits(
        system=_system_place(takes),
        system_alone=takes(Message("system", _SYSTEM[0])),
        repeated_roles=takes(user, user2, answer) and takes(user, answer, answer2, user2),
        assistant_first=takes(answer, user),
        assistant_last=takes(user, answer),
        empty_assistant=takes(user, Message("assistant", ""), user2),
        tool_role=takes(user, answer, Message("tool", _TOOL)),
        content_parts=parts,
    )


def _system_place(takes: Callable[..., bool]) -> SystemPlace:
    first, second, third = (Message("system", text) for text in _SYSTEM)
    user, user2 = (Message("user", text) for text in _USER)
    answer = Message("assistant", _ASSISTANT[0])
    if takes(first, second, user, answer, third, user2) and takes(first, user, second):
        return SystemPlace.ANYWHERE
    return SystemPlace.FIRST if takes(first, user) else SystemPlace.NOWHERE


def _shows(render: Render, parts: bool, *messages: Message) -> bool:
    """Whether every text comes out, and not as the Python notation of a list of parts."""
    try:
        text = render(messages, parts)
    except InvalidRequestError:
        return False
    return "'text':" not in text and all(message.content in text for message in messages)
