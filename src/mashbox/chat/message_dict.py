"""Messages and tools as chat templates see them: the conventions of Hugging Face's tokenizers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NoReturn

from mashbox.chat.formats.json_text import is_shallow
from mashbox.chat.simple_schema import simple_schema
from mashbox.chat.thinking import Marks
from mashbox.chat.traits import CallForm, EmptyContent, TemplateTraits, ThinkingPlace
from mashbox.chat.types import Message, Tool, ToolCall


def message_dicts(
    messages: Sequence[Message], traits: TemplateTraits, marks: Marks | None = None
) -> list[dict[str, Any]]:
    """Messages in the forms that `traits` names. `marks` are needed for thinking in the content."""
    names = {call.id: call.name for message in messages for call in message.tool_calls}
    return [_message(message, traits, marks, names) for message in messages]


def tool_dict(tool: Tool, traits: TemplateTraits) -> dict[str, Any]:
    """A declared tool; templates rely on the schema's `type` and `properties`."""
    missing = {"type": "object", "properties": {}}
    parameters = tool.parameters if missing.keys() <= tool.parameters.keys() else missing | tool.parameters
    if not traits.any_schema:
        parameters = simple_schema(parameters)
    function = {"name": tool.name, "description": tool.description, "parameters": parameters}
    return {"type": "function", "function": function}


def _message(
    message: Message, traits: TemplateTraits, marks: Marks | None, names: dict[str, str]
) -> dict[str, Any]:
    found: dict[str, Any] = {"role": message.role, **_content(message, traits, marks)}
    if message.thinking and traits.thinking not in (ThinkingPlace.PART, ThinkingPlace.CONTENT):
        found[traits.thinking.value] = message.thinking
    if message.tool_calls:
        found["tool_calls"] = [_call(call, traits) for call in message.tool_calls]
    if message.role == "tool" and message.tool_call_id is not None:
        found["tool_call_id"] = message.tool_call_id
        if message.tool_call_id in names:
            found["name"] = names[message.tool_call_id]
    return found


def _content(message: Message, traits: TemplateTraits, marks: Marks | None) -> dict[str, Any]:
    """The content, if there is to be one."""
    text, thinking = message.content, message.thinking
    if message.tool_calls and not text and traits.empty_content is not EmptyContent.TEXT:
        # Such a template would not show the calls beside any content, so thinking has no place in it.
        return {} if traits.empty_content is EmptyContent.ABSENT else {"content": None}
    if thinking and traits.thinking is ThinkingPlace.CONTENT and marks is not None:
        text = f"{marks.opening}{thinking}{marks.closing}{text}"
    as_part = bool(thinking) and traits.thinking is ThinkingPlace.PART
    if not traits.content_parts and not as_part:
        return {"content": text}
    parts = [{"type": "thinking", "thinking": thinking, "closed": True}] if as_part else []
    return {"content": [*parts, {"type": "text", "text": text}] if text or not parts else parts}


def _call(call: ToolCall, traits: TemplateTraits) -> dict[str, Any]:
    arguments: Any = call.arguments
    if traits.calls is CallForm.OBJECT:
        found = _object(call.arguments)
        if found is not None:
            arguments = found
        elif not traits.any_arguments:
            arguments = {"arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _object(text: str) -> dict[str, Any] | None:
    """The JSON object in a text, or None where it is none, too deep, or nothing that UTF-8 and JSON carry."""
    try:
        value = json.loads(text, parse_constant=_refuse)
        if not is_shallow(value):
            return None
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)
