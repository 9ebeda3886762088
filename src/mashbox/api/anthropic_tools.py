"""Anthropic's tools and tool choice as neutral ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from mashbox.api.nested import convert, type_of
from mashbox.api.tools import ToolName, check_choice, check_tools
from mashbox.chat.types import Tool, ToolChoice
from mashbox.errors import InvalidRequestError

CLIENT = "custom"
"""The type of tools that the client runs; also that of tools without a type."""


class ClientTool(msgspec.Struct):
    """A tool the client runs."""

    name: ToolName
    input_schema: dict[str, Any]
    description: str | None = None
    defer_loading: bool | None = None

    @property
    def neutral(self) -> Tool:
        """The tool as the model sees it."""
        return Tool(self.name, self.description or "", self.input_schema)


class Choice(msgspec.Struct):
    """Whether and which tool to call; `name` only with "tool"."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None


def client_tools(declared: Sequence[dict[str, Any]]) -> list[ClientTool]:
    """The declared tools without those that a service of Anthropic's runs: web search and the like.

    Raises InvalidRequestError naming the field that is wrong, or when two tools have one name.
    """
    tools = [
        convert(fields, ClientTool, f"tools[{i}]")
        for i, fields in enumerate(declared)
        if fields.get("input_schema") is not None or type_of(fields, f"tools[{i}]", CLIENT) == CLIENT
    ]
    check_tools([tool.neutral for tool in tools])
    return tools


def neutral_tools(
    declared: Sequence[dict[str, Any]], choice: Choice | None, loaded: frozenset[str]
) -> tuple[tuple[Tool, ...], ToolChoice]:
    """The tools to show to the model, and the choice among them.

    A tool with `defer_loading` is shown once it is among `loaded` or the choice names it. A choice
    that asks for tools which are declared but not shown becomes "auto". Raises InvalidRequestError.
    """
    found = client_tools(declared)
    wanted = loaded | {choice.name} if choice is not None else loaded
    tools = tuple(tool.neutral for tool in found if not tool.defer_loading or tool.name in wanted)
    neutral = _choice(choice, tools, [fields.get("name") for fields in declared])
    check_choice(neutral, tools)
    return tools, neutral


def _choice(choice: Choice | None, tools: Sequence[Tool], declared: Sequence[Any]) -> ToolChoice:
    """`declared` are the names of all tools, also of those that are not among `tools`."""
    match choice:
        case None | Choice(type="auto"):
            return ToolChoice()
        case Choice(type="none"):
            return ToolChoice("none")
        case Choice(type="any"):
            return ToolChoice() if declared and not tools else ToolChoice("required")
        case Choice(name=None):
            raise InvalidRequestError("Missing required field 'tool_choice.name'.", param="tool_choice.name")
    runs_here = any(tool.name == choice.name for tool in tools)
    return ToolChoice() if choice.name in declared and not runs_here else ToolChoice("required", choice.name)
