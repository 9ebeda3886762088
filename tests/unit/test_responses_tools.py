"""Tools of the Responses route: what the model is shown, and the way back to what the client declared."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mashbox.api.responses_choice import read_choice
from mashbox.api.responses_tools import Toolbox, ToolId, custom_arguments, custom_input, read_tools
from mashbox.chat.types import Tool, ToolChoice

SCHEMA = {"type": "object", "properties": {"a": {"type": ["string", "null"]}}}


def box(*tools: dict[str, Any]) -> Toolbox:
    return read_tools([(tools, "tools")])


def function(name: str, **more: Any) -> dict[str, Any]:
    return {"type": "function", "name": name, **more}


def custom(name: str, **more: Any) -> dict[str, Any]:
    return {"type": "custom", "name": name, **more}


def namespace(name: str, *tools: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "namespace", "name": name, "tools": list(tools), **more}


def shown(found: Toolbox) -> list[Tool]:
    return list(found.shown.values())


def test_functions() -> None:
    found = box(
        function("a", description="A.", parameters=SCHEMA, strict=True, defer_loading=True),
        function("b", description=None, parameters=None),
        {"type": "function", "function": {"name": "c", "description": "C."}},
    )
    assert shown(found) == [Tool("a", "A.", SCHEMA), Tool("b", "", {}), Tool("c", "C.", {})]
    assert found.id_of("c") == ToolId("function", "c")


@pytest.mark.parametrize(
    ("fields", "description"),
    [
        ({}, ""),
        ({"description": "D."}, "D."),
        ({"description": "D.", "format": {"type": "text"}}, "D."),
        ({"description": "D.", "format": None}, "D."),
        (
            {
                "description": "D.",
                "format": {"type": "grammar", "syntax": "lark", "definition": "start: x"},
            },
            "D.\n\nThe input must be text of this lark grammar:\nstart: x",
        ),
        (
            {"format": {"type": "grammar", "definition": "x+"}},
            "The input must be text of this grammar:\nx+",
        ),
    ],
)
def test_custom_tools_have_one_string(fields: dict[str, Any], description: str) -> None:
    found = box(custom("patch", **fields))
    (tool,) = shown(found)
    assert (tool.name, tool.description) == ("patch", description)
    assert tool.parameters["required"] == list(tool.parameters["properties"]) == ["input"]
    assert tool.parameters["properties"]["input"]["type"] == "string"
    assert found.id_of("patch") == ToolId("custom", "patch")


def test_namespaces() -> None:
    found = box(
        namespace(
            "files",
            function("read", description="R.", parameters=SCHEMA),
            custom("edit"),
            {"type": "web_search"},
            namespace("deeper", function("x")),
            description="About files.",
        ),
        namespace("mcp__git__", function("log")),
        namespace("none", description="x"),
    )
    tools = shown(found)
    assert [tool.name for tool in tools] == ["files__read", "files__edit", "mcp__git__log"]
    assert tools[0].description == "About the tools of files: About files.\n\nR."
    assert "About files." not in tools[1].description
    assert tools[0].parameters == SCHEMA
    assert found.id_of("files__edit") == ToolId("custom", "edit", "files")
    assert found.id_of("mcp__git__log") == ToolId("function", "log", "mcp__git__")


@pytest.mark.parametrize(
    "kind",
    [
        "web_search",
        "web_search_preview",
        "tool_search",
        "file_search",
        "image_generation",
        "mcp",
        "local_shell",
        "code_interpreter",
        "computer_use_preview",
        "shell",
        "apply_patch",
        "no_such_type",
    ],
)
def test_tools_that_cannot_run_here_are_left_out(kind: str) -> None:
    odd: dict[str, Any] = {
        "type": kind,
        "name": None,
        "parameters": 5,
        "tools": "x",
        "format": "png",
        "description": [],
    }
    assert shown(box(odd, {"type": kind})) == []


NAMES: list[tuple[list[dict[str, Any]], list[tuple[str, str, str | None]]]] = [
    ([function("x"), custom("x")], [("x", "x", None), ("x_2", "x", None)]),
    ([custom("x"), function("x")], [("x_2", "x", None), ("x", "x", None)]),
    (
        [namespace("a", function("b__c")), namespace("a__b", function("c"))],
        [("a__b__c", "b__c", "a"), ("a__b__c_2", "c", "a__b")],
    ),
    (
        [namespace("n", function("x")), custom("n__x"), function("n__x"), function("n__x_2")],
        [("n__x_3", "x", "n"), ("n__x_4", "n__x", None), ("n__x", "n__x", None), ("n__x_2", "n__x_2", None)],
    ),
    ([namespace("n", function("x"), custom("x"))], [("n__x", "x", "n"), ("n__x_2", "x", "n")]),
]


@pytest.mark.parametrize(("tools", "names"), NAMES)
def test_clashing_names_are_told_apart(
    tools: list[dict[str, Any]], names: list[tuple[str, str, str | None]]
) -> None:
    found = box(*tools)
    told = [(tool.name, tool_id.name, tool_id.namespace) for tool_id, tool in found.shown.items()]
    assert told == names
    for tool_id, tool in found.shown.items():
        assert found.id_of(tool.name) == tool_id
        assert found.name_of(tool_id) == tool.name


def test_the_last_declaration_of_a_tool_counts() -> None:
    found = read_tools(
        [
            ([function("x", description="old"), function("y")], "tools"),
            ([function("x", description="new")], "input[0].tools"),
        ]
    )
    assert shown(found) == [Tool("x", "new"), Tool("y")]


TOOLS = [
    function("look"),
    custom("patch"),
    custom("look"),
    namespace("n", function("look"), function("read")),
    {"type": "web_search"},
]
ALL = ("look", "patch", "look_2", "n__look", "n__read")
CHOICES: list[tuple[Any, tuple[str, ...], ToolChoice]] = [
    (None, ALL, ToolChoice()),
    ("auto", ALL, ToolChoice()),
    ("none", ALL, ToolChoice("none")),
    ("required", ALL, ToolChoice("required")),
    (function("look"), ALL, ToolChoice("required", "look")),
    ({"type": "function", "function": {"name": "look"}}, ALL, ToolChoice("required", "look")),
    (function("look", namespace="n"), ALL, ToolChoice("required", "n__look")),
    (function("read"), ALL, ToolChoice("required", "n__read")),
    (function("n__read"), ALL, ToolChoice("required", "n__read")),
    (custom("look"), ALL, ToolChoice("required", "look_2")),
    (custom("patch"), ALL, ToolChoice("required", "patch")),
    ({"type": "web_search"}, ALL, ToolChoice()),
    ({"type": "mcp", "server_label": "x", "name": None}, ALL, ToolChoice()),
    ({"type": "no_such_type"}, ALL, ToolChoice()),
    (
        {"type": "allowed_tools", "mode": "auto", "tools": [custom("patch"), function("look")]},
        ("look", "patch"),
        ToolChoice(),
    ),
    (
        {"type": "allowed_tools", "mode": "required", "tools": [function("read"), {"type": "mcp"}]},
        ("n__read",),
        ToolChoice("required"),
    ),
    ({"type": "allowed_tools", "tools": [{"type": "web_search"}]}, (), ToolChoice()),
]


@pytest.mark.parametrize(("choice", "names", "neutral"), CHOICES)
def test_choices(choice: Any, names: tuple[str, ...], neutral: ToolChoice) -> None:
    tools, found = read_choice(choice, box(*TOOLS))
    assert (tuple(tool.name for tool in tools), found) == (names, neutral)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ('{"input": "a\\n"}', "a\n"),
        ('{"input": "", "x": 1}', ""),
        ('{"input": 5}', '{"input": 5}'),
        ('{"patch": "a"}', '{"patch": "a"}'),
        ("{}", "{}"),
        ('["input"]', '["input"]'),
        ('"text"', '"text"'),
        ("*** Begin", "*** Begin"),
        ("", ""),
        ("[" * 100_000, "[" * 100_000),
    ],
)
def test_the_input_of_a_custom_tool(arguments: str, text: str) -> None:
    assert custom_input(arguments) == text


def test_the_input_of_a_custom_tool_comes_back_as_it_was() -> None:
    text = 'a "b"\\\n\u2028\x00'
    assert json.loads(custom_arguments(text)) == {"input": text}
    assert custom_input(custom_arguments(text)) == text
