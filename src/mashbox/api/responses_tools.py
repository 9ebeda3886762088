"""The tools of a Responses request: one flat list of functions for the model, and the way back.

The model only knows functions. A custom tool becomes one with a single text argument, a tool in a
namespace gets the namespace's name before its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import msgspec

from mashbox.api.nested import convert, type_of
from mashbox.api.responses_body import Entry
from mashbox.api.tools import ToolName
from mashbox.api.wire import MAX_TOOLS
from mashbox.chat.types import Tool
from mashbox.errors import InvalidRequestError

Kind = Literal["function", "custom"]


class DeclaredFunction(msgspec.Struct):
    """A tool of type "function"."""

    name: ToolName
    description: str | None = None
    parameters: dict[str, Any] | None = None


class CustomFormat(msgspec.Struct):
    """What the input of a custom tool looks like: free text, or text of a grammar."""

    syntax: str | None = None
    definition: str | None = None


class DeclaredCustom(msgspec.Struct):
    """A tool of type "custom"."""

    name: ToolName
    description: str | None = None
    format: CustomFormat | None = None


class DeclaredNamespace(msgspec.Struct):
    """A tool of type "namespace": functions and custom tools that belong together."""

    name: ToolName
    tools: list[Entry]
    description: str | None = None


@dataclass(frozen=True, slots=True)
class ToolId:
    """What a client calls a tool; no two tools have the same."""

    kind: Kind
    name: str
    namespace: str | None = None

    @property
    def flat(self) -> str:
        """One name that says it all."""
        if self.namespace is None:
            return self.name
        return f"{self.namespace}{'' if self.namespace.endswith('__') else '__'}{self.name}"


@dataclass(frozen=True, slots=True)
class Toolbox:
    """All tools of a request, by what the client calls them and by what the model does."""

    shown: dict[ToolId, Tool]
    ids: dict[str, ToolId]
    bare: dict[tuple[Kind, str], ToolId]
    """The first tool of each name, whatever its namespace."""

    def name_of(self, tool: ToolId) -> str:
        """The model's name of a tool, also of one that is no longer declared."""
        return self.shown[tool].name if tool in self.shown else tool.flat

    def id_of(self, name: str) -> ToolId:
        """What the client calls the tool that the model calls `name`."""
        return self.ids.get(name, ToolId("function", name))

    def find(self, kind: Kind, name: str, namespace: str | None = None) -> Tool | None:
        """The tool a choice names, by the client's name with or without its namespace, or by the model's."""
        tool_id: ToolId | None = ToolId(kind, name, namespace)
        if namespace is None and tool_id not in self.shown:
            by_model = self.ids.get(name)
            known = by_model is not None and by_model.kind == kind
            tool_id = by_model if known else self.bare.get((kind, name))
        return self.shown.get(tool_id) if tool_id is not None else None


def read_tools(lists: Iterable[tuple[Sequence[Entry], str]]) -> Toolbox:
    """The tools of several lists, each with its place in the body, as one box.

    A tool declared twice counts as its last declaration says. Raises InvalidRequestError.
    """
    declared: dict[ToolId, Tool] = {}
    for entries, where in lists:
        for i, entry in enumerate(entries):
            declared |= _read(entry, f"{where}[{i}]")
    if len(declared) > MAX_TOOLS:
        raise InvalidRequestError(f"There are more than {MAX_TOOLS} tools in all.", param="tools")
    return _named_apart(declared)


def _read(entry: Entry, where: str) -> dict[ToolId, Tool]:
    """Types that cannot run on a client (web search and the like) give nothing."""
    if type_of(entry, where) == "namespace":
        return _read_namespace(convert(entry, DeclaredNamespace, where), where)
    return _read_single(entry, where, None)


def _read_single(entry: Entry, where: str, namespace: str | None) -> dict[ToolId, Tool]:
    match type_of(entry, where):
        case "function":
            return dict([_function(entry, where, namespace)])
        case "custom":
            return dict([_custom(convert(entry, DeclaredCustom, where), namespace)])
        case _:
            return {}


def _read_namespace(declared: DeclaredNamespace, where: str) -> dict[ToolId, Tool]:
    """The namespace's description goes to its first tool, not to each: it may be long."""
    tools: dict[ToolId, Tool] = {}
    for i, entry in enumerate(declared.tools):
        tools |= _read_single(entry, f"{where}.tools[{i}]", declared.name)
    if tools and declared.description:
        first, tool = next(iter(tools.items()))
        about = f"About the tools of {declared.name}: {declared.description}"
        tools[first] = replace(tool, description=_paragraphs(about, tool.description))
    return tools


def _function(entry: Entry, where: str, namespace: str | None) -> tuple[ToolId, Tool]:
    """Some clients wrap the function as the chat route has it."""
    if "name" not in entry and isinstance(entry.get("function"), dict):
        entry, where = entry["function"], f"{where}.function"
    declared = convert(entry, DeclaredFunction, where)
    tool_id = ToolId("function", declared.name, namespace)
    return tool_id, Tool(tool_id.flat, declared.description or "", declared.parameters or {})


def _custom(declared: DeclaredCustom, namespace: str | None) -> tuple[ToolId, Tool]:
    tool_id = ToolId("custom", declared.name, namespace)
    description = _paragraphs(declared.description or "", _grammar(declared.format))
    return tool_id, Tool(tool_id.flat, description, _custom_parameters())


def _grammar(form: CustomFormat | None) -> str:
    if form is None or not form.definition:
        return ""
    syntax = f"{form.syntax} " if form.syntax else ""
    return f"The input must be text of this {syntax}grammar:\n{form.definition}"


def _custom_parameters() -> dict[str, Any]:
    text = {"type": "string", "description": "The whole input of the tool, as plain text."}
    return {
        "type": "object",
        "properties": {"input": text},
        "required": ["input"],
        "additionalProperties": False,
    }


def _paragraphs(*texts: str) -> str:
    return "\n\n".join(text for text in texts if text)


def _named_apart(declared: dict[ToolId, Tool]) -> Toolbox:
    """Plain functions keep their names; whatever else would have the same name is numbered."""
    plain = {tool_id.name for tool_id in declared if _is_plain(tool_id)}
    box = Toolbox({}, {}, {})
    for tool_id, tool in declared.items():
        name, number = tool.name, 1
        while name in box.ids or (name in plain and not _is_plain(tool_id)):
            number += 1
            name = f"{tool.name}_{number}"
        box.shown[tool_id] = replace(tool, name=name)
        box.ids[name] = tool_id
        box.bare.setdefault((tool_id.kind, tool_id.name), tool_id)
    return box


def _is_plain(tool_id: ToolId) -> bool:
    return tool_id.kind == "function" and tool_id.namespace is None


def custom_arguments(text: str) -> str:
    """The arguments with which the model called a custom tool whose input was `text`."""
    return msgspec.json.encode({"input": text}).decode()


def custom_input(arguments: str) -> str:
    """The input for a custom tool; whatever else the model may have written is handed over as it is."""
    try:
        found = msgspec.json.decode(arguments)
    except (msgspec.DecodeError, RecursionError):
        return arguments
    text = found.get("input") if isinstance(found, dict) else None
    return text if isinstance(text, str) else arguments
