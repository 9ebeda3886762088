"""Messages and tools in the forms that templates want."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mashbox.chat.message_dict import message_dicts, tool_dict
from mashbox.chat.simple_schema import simple_schema
from mashbox.chat.thinking import Marks
from mashbox.chat.traits import CallForm, EmptyContent, TemplateTraits, ThinkingPlace
from mashbox.chat.types import Message, Tool, ToolCall

MARKS = Marks("<think>", "</think>", "<think>\n", "\n</think>\n\n")


def one(message: Message, **traits: Any) -> dict[str, Any]:
    (found,) = message_dicts([message], TemplateTraits(**traits), MARKS)
    return found


def arguments(text: str, **traits: Any) -> Any:
    message = Message("assistant", "", tool_calls=(ToolCall("call00001", "f", text),))
    (call,) = one(message, **traits)["tool_calls"]
    assert call == {"id": "call00001", "type": "function", "function": call["function"]}
    assert call["function"]["name"] == "f"
    return call["function"]["arguments"]


def test_a_plain_message_has_only_what_it_needs() -> None:
    assert one(Message("user", "hi")) == {"role": "user", "content": "hi"}
    parts = [{"type": "text", "text": "hi"}]
    assert one(Message("user", "hi"), content_parts=True) == {"role": "user", "content": parts}


def test_arguments_keep_order_and_values() -> None:
    text = '{"z": 1, "a": [1.5, true, null, "é\\n"], "m": {"y": 12345678901234567890}}'
    found = arguments(text)
    assert json.dumps(found, ensure_ascii=False) == text
    assert arguments(text, calls=CallForm.TEXT) == text


@pytest.mark.parametrize(
    "text",
    [
        *("", "no json", "[1]", "null", '"{}"', '{"a": 1', '{"a": NaN}', '{"a": 1e999}', "{}{}"),
        '{"a": "\\ud800"}',
        '{"a":' * 100_000,
    ],
)
def test_arguments_that_are_no_object(text: str) -> None:
    assert arguments(text) == text
    assert arguments(text, any_arguments=False) == {"arguments": text}


@pytest.mark.parametrize(
    ("empty", "content"),
    [
        (EmptyContent.TEXT, {"content": ""}),
        (EmptyContent.NONE, {"content": None}),
        (EmptyContent.ABSENT, {}),
    ],
)
def test_content_beside_calls(empty: EmptyContent, content: dict[str, Any]) -> None:
    calls = (ToolCall("call00001", "f", "{}"),)
    found = one(Message("assistant", "", tool_calls=calls), empty_content=empty)
    assert {key: value for key, value in found.items() if key == "content"} == content
    assert one(Message("assistant", "t", tool_calls=calls), empty_content=empty)["content"] == "t"
    thoughtful = Message("assistant", "", "hm", calls)
    found = one(thoughtful, empty_content=empty, thinking=ThinkingPlace.CONTENT)
    hidden = empty is not EmptyContent.TEXT
    assert found.get("content") == (content.get("content") if hidden else "<think>\nhm\n</think>\n\n")


def test_a_result_has_the_id_and_the_name_of_its_call() -> None:
    calls = (ToolCall("call00001", "f", "{}"), ToolCall("call00002", "g", "{}"))
    messages = [Message("assistant", "", tool_calls=calls), Message("tool", "R", tool_call_id="call00002")]
    expected = {"role": "tool", "content": "R", "tool_call_id": "call00002", "name": "g"}
    assert message_dicts(messages, TemplateTraits())[1] == expected


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        (ThinkingPlace.REASONING_CONTENT, {"content": "t", "reasoning_content": "hm"}),
        (ThinkingPlace.THINKING, {"content": "t", "thinking": "hm"}),
        (ThinkingPlace.CONTENT, {"content": "<think>\nhm\n</think>\n\nt"}),
        (
            ThinkingPlace.PART,
            {
                "content": [
                    {"type": "thinking", "thinking": "hm", "closed": True},
                    {"type": "text", "text": "t"},
                ]
            },
        ),
    ],
)
def test_thinking(place: ThinkingPlace, expected: dict[str, Any]) -> None:
    message = Message("assistant", "t", thinking="hm")
    assert one(message, thinking=place) == {"role": "assistant", **expected}
    assert one(Message("assistant", "t"), thinking=place) == {"role": "assistant", "content": "t"}


def test_a_tool_has_a_schema_of_an_object() -> None:
    schema = {"properties": {"b": {}, "a": {}}, "type": "object", "$schema": "x"}
    function = {"name": "f", "description": "d", "parameters": schema}
    assert tool_dict(Tool("f", "d", schema), TemplateTraits()) == {"type": "function", "function": function}
    assert list(tool_dict(Tool("f", "d", schema), TemplateTraits())["function"]["parameters"]) == list(schema)
    bare = tool_dict(Tool("f"), TemplateTraits())["function"]
    assert bare == {"name": "f", "description": "", "parameters": {"type": "object", "properties": {}}}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "integer", "minimum": 1}, {"type": "integer", "minimum": 1}),
        ({"type": ["null", "number"]}, {"type": "number"}),
        (
            {"anyOf": [{"type": "null"}, {"type": "boolean"}], "description": "d"},
            {"description": "d", "type": "boolean"},
        ),
        ({}, {"type": "string"}),
        (True, {"type": "string"}),
        ({"$ref": "#/x"}, {"type": "string"}),
        ({"type": "null"}, {"type": "string"}),
        ({"items": {}}, {"items": {"type": "string"}, "type": "array"}),
        (
            {"properties": {"a": {"type": ["integer", "null"]}}},
            {"properties": {"a": {"description": "", "type": "integer"}}, "type": "object"},
        ),
    ],
)
def test_simple_schemas(schema: Any, expected: dict[str, Any]) -> None:
    assert simple_schema(schema) == expected


def test_a_simple_schema_is_not_deep() -> None:
    deep: dict[str, Any] = {}
    for _ in range(5000):
        deep = {"items": deep}
    assert json.dumps(simple_schema(deep)).count("items") == 33
