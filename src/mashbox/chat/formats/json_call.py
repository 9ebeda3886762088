"""Calls that are JSON objects: a name and arguments."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from mashbox.chat.formats import json_text
from mashbox.chat.types import Call, Tool

ARGUMENTS = ("arguments", "parameters")
"""What families call the arguments; the first that is there counts."""


def tool_names(tools: Sequence[Tool]) -> frozenset[str]:
    """What a call may be a call of."""
    return frozenset(tool.name for tool in tools)


def to_call(text: str, names: Collection[str]) -> Call | None:
    """The call that an object's text is; None if it is none, or none of `names`."""
    try:
        found = json_text.members(text)
    except ValueError:
        return None
    name, _ = found.get("name", (None, ""))
    if not isinstance(name, str) or name not in names:
        return None
    value, raw = next((found[key] for key in ARGUMENTS if key in found), (None, ""))
    arguments = arguments_text(value, raw)
    return None if arguments is None else Call(name, arguments)


def arguments_text(value: Any, raw: str) -> str | None:
    """The arguments' JSON text as the model wrote it, if they are an object; nothing at all is an empty one.

    A string that holds an object counts as that object.
    """
    if isinstance(value, dict):
        return raw
    if value is None:
        return "{}"
    if isinstance(value, str):
        return object_text(value) if value.strip() else "{}"
    return None


def object_text(text: str) -> str | None:
    """`text` itself, if it is the JSON text of an object."""
    try:
        value = json_text.parse(text)
    except ValueError:
        return None
    return text if isinstance(value, dict) and json_text.is_unicode(text) else None


def to_calls(text: str, names: Collection[str]) -> Sequence[Call] | None:
    """The calls that an array of objects, or a lone object, is; None unless each is one of `names`."""
    try:
        texts = json_text.items(text) if text.lstrip().startswith("[") else [text]
    except ValueError:
        return None
    calls = [call for item in texts if (call := to_call(item, names)) is not None]
    return calls if calls and len(calls) == len(texts) else None
