"""OpenAI chat messages and tools as neutral ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from mashbox.api.tools import ToolName, arguments_text, check_choice, check_tools
from mashbox.api.wire import MAX_CALLS, MAX_MESSAGES, CallId
from mashbox.chat.types import Message, Tool, ToolCall, ToolChoice
from mashbox.errors import InvalidRequestError
from mashbox.http.echo import echo

TEXT_PARTS = frozenset({"text", "input_text", "output_text"})


class ContentPart(msgspec.Struct):
    """One part of a message's content; only parts with text are accepted."""

    type: str
    text: str | None = None
    refusal: str | None = None


Parts = Annotated[list[ContentPart], Meta(max_length=MAX_MESSAGES)]


class CalledFunction(msgspec.Struct):
    """What an earlier call called. Some clients send the arguments as an object."""

    name: ToolName
    arguments: str | dict[str, Any] | None = None


class MessageToolCall(msgspec.Struct):
    """One call of an assistant message."""

    id: CallId
    function: CalledFunction


class ChatMessage(msgspec.Struct):
    """One message of a chat completions request."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | Parts | None = None
    tool_calls: Annotated[list[MessageToolCall], Meta(max_length=MAX_CALLS)] | None = None
    tool_call_id: CallId | None = None
    reasoning_content: str | None = None


class FunctionSpec(msgspec.Struct):
    """A function a client declares."""

    name: ToolName
    description: str | None = None
    parameters: dict[str, Any] | None = None


class ChatTool(msgspec.Struct):
    """A declared tool; those of other types than "function" cannot run here and are left out."""

    type: str = "function"
    function: FunctionSpec | None = None


class NamedFunction(msgspec.Struct):
    """The name in a tool choice."""

    name: str


class NamedChoice(msgspec.Struct):
    """A tool choice that names one function."""

    type: Literal["function"]
    function: NamedFunction


ChoiceField = Literal["auto", "none", "required"] | NamedChoice


def neutral_messages(messages: Sequence[ChatMessage]) -> tuple[Message, ...]:
    """Raises InvalidRequestError naming the part that is not text."""
    return tuple(_neutral(message, f"messages[{i}]") for i, message in enumerate(messages))


def _neutral(message: ChatMessage, where: str) -> Message:
    if message.role == "tool" and message.tool_call_id is None:
        raise InvalidRequestError(
            f"Missing required field '{where}.tool_call_id'.", param=f"{where}.tool_call_id"
        )
    return Message(
        role="system" if message.role == "developer" else message.role,
        content=content_text(message.content, f"{where}.content"),
        thinking=(message.reasoning_content or "") if message.role == "assistant" else "",
        tool_calls=_calls(message, f"{where}.tool_calls"),
        tool_call_id=message.tool_call_id if message.role == "tool" else None,
    )


def _calls(message: ChatMessage, where: str) -> tuple[ToolCall, ...]:
    if message.role != "assistant":
        return ()
    calls = enumerate(message.tool_calls or ())
    return tuple(_call(call, f"{where}[{i}].function.arguments") for i, call in calls)


def _call(call: MessageToolCall, where: str) -> ToolCall:
    return ToolCall(call.id, call.function.name, arguments_text(call.function.arguments, where))


def content_text(content: str | list[ContentPart] | None, where: str) -> str:
    """The text of a content found at `where`, a line for each part.

    Raises InvalidRequestError naming the part that is not text.
    """
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(_part_text(part, f"{where}[{i}]") for i, part in enumerate(content))


def _part_text(part: ContentPart, where: str) -> str:
    if part.type == "refusal":
        text, field = part.refusal, "refusal"
    elif part.type in TEXT_PARTS:
        text, field = part.text, "text"
    else:
        raise InvalidRequestError(
            f"'{where}' is a part of type '{echo(part.type)}', but this model reads text only.", param=where
        )
    if text is None:
        raise InvalidRequestError(f"Missing required field '{where}.{field}'.", param=f"{where}.{field}")
    return text


def neutral_tools(tools: Sequence[ChatTool]) -> tuple[Tool, ...]:
    """The functions among the declared tools."""
    functions = (tool.function for tool in tools if tool.type == "function" and tool.function is not None)
    found = tuple(
        Tool(function.name, function.description or "", function.parameters or {}) for function in functions
    )
    check_tools(found)
    return found


def neutral_choice(choice: ChoiceField | None, tools: Sequence[Tool]) -> ToolChoice:
    """Raises InvalidRequestError when the choice asks for a tool that is not there."""
    if isinstance(choice, NamedChoice):
        neutral = ToolChoice("required", choice.function.name)
    else:
        neutral = ToolChoice(choice or "auto")
    check_choice(neutral, tools)
    return neutral
