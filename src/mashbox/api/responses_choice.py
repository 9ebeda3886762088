"""The tool choice of a Responses request: what the model is shown, and what it must do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from mashbox.api.nested import convert
from mashbox.api.responses_body import Entry, Mode
from mashbox.api.responses_tools import Kind, Toolbox
from mashbox.api.tools import check_choice
from mashbox.api.wire import MAX_TOOLS
from mashbox.chat.types import Tool, ToolChoice
from mashbox.errors import InvalidRequestError
from mashbox.http.echo import echo


class ChosenFunction(msgspec.Struct):
    """The name as the chat route has it."""

    name: str


class ChosenTool(msgspec.Struct):
    """A choice of one tool, or of several."""

    type: str
    name: str | None = None
    namespace: str | None = None
    function: ChosenFunction | None = None


class AllowedTools(msgspec.Struct):
    """A choice of type "allowed_tools"."""

    tools: Annotated[list[Entry], Meta(max_length=MAX_TOOLS)]
    mode: Literal["auto", "required"] = "auto"


def read_choice(choice: Mode | Entry | None, box: Toolbox) -> tuple[tuple[Tool, ...], ToolChoice]:
    """The tools to show and the neutral choice.

    Raises InvalidRequestError when a tool is asked for that is not there. A choice of a tool that
    cannot run here (web search and the like) is left to the model.
    """
    tools = tuple(box.shown.values())
    if choice is None:
        return tools, ToolChoice()
    if isinstance(choice, str):
        return _checked(tools, ToolChoice(choice))
    chosen = convert(choice, ChosenTool, "tool_choice")
    if chosen.type == "allowed_tools":
        allowed = convert(choice, AllowedTools, "tool_choice")
        return _checked(_allowed(allowed.tools, box), ToolChoice(allowed.mode))
    named = _named(chosen, "tool_choice", box)
    return tools, ToolChoice() if named is None else ToolChoice("required", named.name)


def _checked(tools: tuple[Tool, ...], choice: ToolChoice) -> tuple[tuple[Tool, ...], ToolChoice]:
    check_choice(choice, tools)
    return tools, choice


def _allowed(entries: Sequence[Entry], box: Toolbox) -> tuple[Tool, ...]:
    """The allowed tools, in the order of their declaration."""
    names = set()
    for i, entry in enumerate(entries):
        where = f"tool_choice.tools[{i}]"
        if (tool := _named(convert(entry, ChosenTool, where), where, box)) is not None:
            names.add(tool.name)
    return tuple(tool for tool in box.shown.values() if tool.name in names)


def _named(chosen: ChosenTool, where: str, box: Toolbox) -> Tool | None:
    """None for a type that cannot run here."""
    kind: Kind
    if chosen.type == "function":
        kind = "function"
    elif chosen.type == "custom":
        kind = "custom"
    else:
        return None
    name = chosen.name or (chosen.function.name if chosen.function else None)
    if name is None:
        raise InvalidRequestError(f"Missing required field '{where}.name'.", param=f"{where}.name")
    if (tool := box.find(kind, name, chosen.namespace)) is None:
        raise InvalidRequestError(
            f"'{where}' names '{echo(name)}', which is not among the tools.", param="tool_choice"
        )
    return tool
