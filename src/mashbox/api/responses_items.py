"""The items of a response's output, as they begin and as they are done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mashbox.api.ids import new_id
from mashbox.api.responses_tools import Toolbox, custom_input
from mashbox.chat.types import Call

Item = dict[str, Any]


@dataclass(frozen=True, slots=True)
class TextItem:
    """An item that is nothing but text: the message, or the reasoning."""

    id: str
    is_message: bool

    @property
    def part_type(self) -> str:
        """The type of its one part; events about its text have this name, too."""
        return "output_text" if self.is_message else "reasoning_text"

    def part(self, text: str) -> dict[str, Any]:
        """Its one part."""
        part = {"type": self.part_type, "text": text}
        return part | {"annotations": [], "logprobs": []} if self.is_message else part

    def started(self) -> Item:
        """The item before it has a part."""
        return self._item("in_progress", [])

    def completed(self, text: str) -> Item:
        """The item with all of its text."""
        return self._item("completed", [self.part(text)])

    def _item(self, status: str, content: list[dict[str, Any]]) -> Item:
        if self.is_message:
            kind: Item = {"type": "message", "role": "assistant"}
        else:
            kind = {"type": "reasoning", "summary": []}
        return {"id": self.id, **kind, "status": status, "content": content}


def new_message() -> TextItem:
    """A message with a new id."""
    return TextItem(new_id("msg_"), is_message=True)


def new_reasoning() -> TextItem:
    """Reasoning with a new id."""
    return TextItem(new_id("rs_"), is_message=False)


@dataclass(frozen=True, slots=True)
class CallItem:
    """A call of a function or of a custom tool; `payload` are its arguments or its input."""

    id: str
    call_id: str
    name: str
    namespace: str | None
    custom: bool
    payload: str

    @property
    def field(self) -> str:
        """Where the item has its payload."""
        return "input" if self.custom else "arguments"

    @property
    def event(self) -> str:
        """The beginning of the names of the events about its payload."""
        return "response.custom_tool_call_input" if self.custom else "response.function_call_arguments"

    def started(self) -> Item:
        """The item before it has its payload."""
        return self._item("in_progress", "")

    def completed(self) -> Item:
        """The whole item."""
        return self._item("completed", self.payload)

    def _item(self, status: str, payload: str) -> Item:
        item = {
            "id": self.id,
            "type": "custom_tool_call" if self.custom else "function_call",
            "status": status,
            "call_id": self.call_id,
            "name": self.name,
            self.field: payload,
        }
        return item if self.namespace is None else item | {"namespace": self.namespace}


def new_call(call: Call, tools: Toolbox) -> CallItem:
    """A call with new ids, told as the client declared the tool."""
    tool = tools.id_of(call.name)
    custom = tool.kind == "custom"
    return CallItem(
        new_id("ctc_" if custom else "fc_"),
        new_id("call_"),
        tool.name,
        tool.namespace,
        custom,
        custom_input(call.arguments) if custom else call.arguments,
    )
