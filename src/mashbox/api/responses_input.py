"""The input items of a Responses request as neutral messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from mashbox.api.nested import convert, type_of
from mashbox.api.openai_messages import ContentPart, Parts, content_text
from mashbox.api.responses_body import Entry
from mashbox.api.responses_tools import Toolbox, ToolId, custom_arguments
from mashbox.api.tools import ToolName, arguments_text
from mashbox.api.wire import MAX_MESSAGES, MAX_TOOLS, CallId
from mashbox.chat.types import Message, ToolCall
from mashbox.errors import InvalidRequestError

SHELL = "local_shell"
"""The name under which the model sees earlier calls of the local shell."""


class MessageItem(msgspec.Struct):
    """One message."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | Parts | None = None


class FunctionCallItem(msgspec.Struct):
    """A call of a function that the model made."""

    call_id: CallId
    name: ToolName
    namespace: ToolName | None = None
    arguments: str | dict[str, Any] | None = None


class CustomCallItem(msgspec.Struct):
    """A call of a custom tool that the model made."""

    call_id: CallId
    name: ToolName
    input: str
    namespace: ToolName | None = None


class OutputItem(msgspec.Struct):
    """What a call gave."""

    call_id: CallId
    output: str | Parts | None = None


class ShellCallItem(msgspec.Struct):
    """A call of the local shell that a model made."""

    action: dict[str, Any]
    call_id: CallId | None = None
    id: CallId | None = None


class ShellOutputItem(msgspec.Struct):
    """What a call of the local shell gave."""

    call_id: CallId | None = None
    id: CallId | None = None
    output: str | Parts | None = None


class ThoughtPart(msgspec.Struct):
    """A part of earlier thinking."""

    type: str
    text: str | None = None


class ReasoningItem(msgspec.Struct):
    """Earlier thinking. Its content is null where the client was not to keep it."""

    content: Annotated[list[ThoughtPart], Meta(max_length=MAX_MESSAGES)] | None = None


class AdditionalToolsItem(msgspec.Struct):
    """Tools that come with the conversation."""

    tools: Annotated[list[Entry], Meta(max_length=MAX_TOOLS)]


TOOL_ITEMS = frozenset({"additional_tools", "tool_search_output"})
"""Items that bring tools: all of them are shown, as the model cannot search for any here."""


def item_type(item: Entry, where: str) -> str:
    """The type of the item found at `where`; only messages may leave it out."""
    return type_of(item, where, "message" if item.get("role") is not None else None)


def additional_tools(items: Sequence[Entry]) -> list[tuple[Sequence[Entry], str]]:
    """The lists of tools among the items, each with its place."""
    return [
        (convert(item, AdditionalToolsItem, f"input[{i}]").tools, f"input[{i}].tools")
        for i, item in enumerate(items)
        if item_type(item, f"input[{i}]") in TOOL_ITEMS
    ]


def read_items(items: Sequence[Entry], box: Toolbox) -> tuple[Message, ...]:
    """Raises InvalidRequestError naming the place of what cannot be read."""
    reader = ItemReader(box)
    for i, item in enumerate(items):
        reader.read(item, f"input[{i}]")
    return reader.messages()


@dataclass(slots=True)
class Turn:
    """The assistant's items since the last one of somebody else."""

    thoughts: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)

    def messages(self) -> tuple[Message, ...]:
        """One message or none: thinking that nothing followed is forgotten, nothing came of it."""
        if not self.texts and not self.calls:
            return ()
        content = "\n\n".join(text for text in self.texts if text)
        return (Message("assistant", content, "\n\n".join(self.thoughts), tuple(self.calls)),)


class ItemReader:
    """Reads items one after the other; the assistant's items between two others become one message."""

    def __init__(self, box: Toolbox) -> None:
        self._box = box
        self._messages: list[Message] = []
        self._turn = Turn()
        self._shell_ids: dict[str, str] = {}

    def messages(self) -> tuple[Message, ...]:
        """All that was read."""
        return (*self._messages, *self._turn.messages())

    def read(self, item: Entry, where: str) -> None:
        """Take in one item; types that say nothing to a model are skipped."""
        match item_type(item, where):
            case "message":
                self._read_message(convert(item, MessageItem, where), where)
            case "reasoning":
                self._read_reasoning(convert(item, ReasoningItem, where))
            case "function_call" | "custom_tool_call" | "local_shell_call":
                self._turn.calls.append(self._read_call(item, where))
            case "function_call_output" | "custom_tool_call_output":
                output = convert(item, OutputItem, where)
                self._add_result(output.call_id, output.output, where)
            case "local_shell_call_output":
                self._read_shell_output(convert(item, ShellOutputItem, where), where)
            case "item_reference":
                raise InvalidRequestError(
                    f"'{where}' refers to a stored item, but nothing is stored here. Send the item itself.",
                    param=where,
                )

    def _read_message(self, item: MessageItem, where: str) -> None:
        content = content_text(item.content, f"{where}.content")
        if item.role == "assistant":
            self._turn.texts.append(content)
        else:
            self._add(Message("user" if item.role == "user" else "system", content))

    def _read_reasoning(self, item: ReasoningItem) -> None:
        kept = (part for part in item.content or () if part.type in ("reasoning_text", "text"))
        self._turn.thoughts += [part.text for part in kept if part.text]

    def _read_call(self, item: Entry, where: str) -> ToolCall:
        match item_type(item, where):
            case "function_call":
                call = convert(item, FunctionCallItem, where)
                name = self._box.name_of(ToolId("function", call.name, call.namespace))
                return ToolCall(call.call_id, name, arguments_text(call.arguments, f"{where}.arguments"))
            case "custom_tool_call":
                custom = convert(item, CustomCallItem, where)
                name = self._box.name_of(ToolId("custom", custom.name, custom.namespace))
                return ToolCall(custom.call_id, name, custom_arguments(custom.input))
            case _:
                return self._shell_call(convert(item, ShellCallItem, where), where)

    def _shell_call(self, call: ShellCallItem, where: str) -> ToolCall:
        """Its result may name the call by either of its ids."""
        call_id = _either(call.call_id, call.id, where)
        if call.id is not None:
            self._shell_ids[call.id] = call_id
        action = {name: value for name, value in call.action.items() if name != "type" and value is not None}
        return ToolCall(call_id, SHELL, arguments_text(action, f"{where}.action"))

    def _read_shell_output(self, item: ShellOutputItem, where: str) -> None:
        call_id = _either(item.call_id, item.id, where)
        self._add_result(self._shell_ids.get(call_id, call_id), item.output, where)

    def _add_result(self, call_id: str, output: str | list[ContentPart] | None, where: str) -> None:
        self._add(Message("tool", content_text(output, f"{where}.output"), tool_call_id=call_id))

    def _add(self, message: Message) -> None:
        self._messages += (*self._turn.messages(), message)
        self._turn = Turn()


def _either(call_id: str | None, other: str | None, where: str) -> str:
    found = call_id or other
    if found is None:
        raise InvalidRequestError(f"Missing required field '{where}.call_id'.", param=f"{where}.call_id")
    return found
