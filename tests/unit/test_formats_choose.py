"""chat/formats: which format a template uses, the plain one's own words, and types of unquoted values."""

from __future__ import annotations

from typing import Any

import pytest

from mashbox.chat.formats.choose import FORMAT_NAMES, choose_format
from mashbox.chat.formats.plain import describe, write_call, write_result
from mashbox.chat.formats.schema_types import possible_types, typed
from mashbox.chat.types import Call
from mashbox.errors import ConfigError
from tests.unit.formats_support import NOTE, PING, WEATHER, read, reader

TEMPLATES: dict[str, str] = {
    "{% for m in messages %}<|im_start|>{{ m.role }}{% endfor %}": "plain",
    "": "plain",
    "reply in <tool_call></tool_call> tags": "hermes",
    "<|start_header_id|> <tool_call>": "hermes",
    "<tool_call>\n<function=x>\n<parameter=y>": "qwen3-coder",
    "<tool_call>{name}<arg_key>{key}</arg_key>": "glm",
    "Environment: ipython <|python_tag|>": "llama3",
    '<|start_header_id|> {"name": function name, "parameters": dictionary}': "llama3",
    "<|start_header_id|>{{ m.role }}": "plain",
    "[AVAILABLE_TOOLS] [TOOL_CALLS] [": "mistral",
    "[TOOL_CALLS]{{ name }}[ARGS]": "mistral-args",
    "<｜tool▁calls▁begin｜>function\n```json": "deepseek-v3",  # noqa: RUF001
    "<｜tool▁calls▁begin｜>": "deepseek-v3.1",  # noqa: RUF001
    "<|tool_list_start|> <|tool_call_start|>": "lfm2",
    "{% set keep_past_thinking = false %} List of tools: [": "lfm2",
    "<|start|>assistant<|channel|>final<|message|>": "harmony",
}


@pytest.mark.parametrize(("template", "name"), TEMPLATES.items())
def test_the_template_s_marks_decide(template: str, name: str) -> None:
    assert choose_format(template, None).name == name


def test_no_template_is_plain() -> None:
    assert choose_format(None, None).name == "plain"


@pytest.mark.parametrize("name", FORMAT_NAMES)
def test_a_name_goes_before_the_template(name: str) -> None:
    assert choose_format("[TOOL_CALLS]", name).name == name


def test_an_unknown_name_is_answered_with_the_choices() -> None:
    with pytest.raises(ConfigError, match=r"'pythia'.*hermes, .*plain"):
        choose_format(None, "pythia")


def test_only_harmony_always_needs_its_reader() -> None:
    assert [name for name in FORMAT_NAMES if choose_format(None, name).always] == ["harmony"]


def test_plain_describes_each_tool_on_a_line() -> None:
    lines = describe([WEATHER, PING]).splitlines()
    assert lines[1].startswith(
        '{"name": "get_weather", "description": "The weather of a place.", "parameters": {'
    )
    assert lines[2] == '{"name": "ping", "parameters": {}}'
    assert any(line.startswith("<tool_call>{") for line in lines)


@pytest.mark.parametrize("arguments", ["{}", '{ "text":"a </tool_call> \\n" }'])
def test_plain_reads_what_it_writes(arguments: str) -> None:
    assert read(reader("plain", [NOTE]), [write_call("note", arguments)]) == (Call("note", arguments),)


def test_plain_keeps_arguments_that_are_no_object() -> None:
    written = '<tool_call>{"name": "note", "arguments": "so \\"what"}</tool_call>'
    assert write_call("note", 'so "what') == written


def test_plain_writes_results() -> None:
    assert write_result("note", "a\nb") == "Result of note:\na\nb"
    assert write_result("", "a") == "Result:\na"


ROOT: dict[str, Any] = {"$defs": {"size": {"type": "integer"}, "loop": {"$ref": "#/$defs/loop"}}}
TYPES: list[tuple[Any, str, str]] = [  # schema, the value as written, its JSON
    ({"type": "string"}, " 5 ", '" 5 "'),
    ({"type": "string"}, "null", '"null"'),
    ({"type": "string"}, 'é "x"\n', '"é \\"x\\"\\n"'),
    ({"type": "integer"}, " 5\n", "5"),
    ({"type": "integer"}, "-5.0", "-5.0"),
    ({"type": "integer"}, "5.5", '"5.5"'),
    ({"type": "integer"}, "05", '"05"'),
    ({"type": "integer"}, "9" * 5000, "9" * 5000),
    ({"type": "number"}, "1e400", "1e400"),
    ({"type": "number"}, "0.10", "0.10"),
    ({"type": "number"}, "true", '"true"'),
    ({"type": "number"}, "Infinity", '"Infinity"'),
    ({"type": "boolean"}, "true", "true"),
    ({"type": "boolean"}, "False", "false"),
    ({"type": "boolean"}, "1", '"1"'),
    ({"type": "null"}, "None", "null"),
    ({"type": "object"}, '{ "a": [1] }', '{ "a": [1] }'),
    ({"type": "object"}, "[1]", '"[1]"'),
    ({"type": "array"}, "[1, NaN]", '"[1, NaN]"'),
    ({"type": "array"}, "[" * 100_000, '"' + "[" * 100_000 + '"'),
    ({"type": ["integer", "string"]}, "5", "5"),
    ({"type": ["integer", "string"]}, "x", '"x"'),
    ({"type": ["string", "integer"]}, "5", '"5"'),
    ({"type": ["string", "null"]}, "null", "null"),
    ({"anyOf": [{"type": "array"}, {"type": "number"}]}, "5", "5"),
    ({"oneOf": [{"type": "boolean"}, {"type": "string"}]}, "true", "true"),
    ({"allOf": [{"$ref": "#/$defs/size"}]}, "5", "5"),
    ({"$ref": "#/$defs/loop"}, "5", '"5"'),
    ({"$ref": "#/nowhere/at/all"}, "5", '"5"'),
    ({"enum": [1, 2]}, "2", "2"),
    ({"enum": ["1", "2"]}, "2", '"2"'),
    ({"const": True}, "true", "true"),
    ({}, "5", '"5"'),
    ({}, '{"a": 1}', '{"a": 1}'),
    ({}, "[1", '"[1"'),
    (None, "5", '"5"'),
    (True, "[5]", "[5]"),
    ({"type": 7, "enum": 5, "anyOf": {}}, "5", '"5"'),
]


@pytest.mark.parametrize(("schema", "raw", "expected"), TYPES)
def test_the_schema_types_a_value(schema: Any, raw: str, expected: str) -> None:
    assert typed(raw, possible_types(schema, ROOT)) == expected
