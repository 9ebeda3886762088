"""Request bodies of the two Messages routes: what passes, what it becomes, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from mashbox.api.anthropic_conversation import WireMessage
from mashbox.api.anthropic_request import CountRequest, MessagesRequest, parse_count, parse_request
from mashbox.chat.types import ChatRequest, Message, ThinkingWish, Tool, ToolCall, ToolChoice
from mashbox.engine.types import Sampling
from mashbox.errors import InvalidRequestError
from mashbox.http.body import decode_json

MESSAGES = msgspec.json.Decoder(MessagesRequest)
COUNT = msgspec.json.Decoder(CountRequest)
HELLO = [{"role": "user", "content": "hello"}]
DEFAULTS = Sampling(temperature=0.7, top_p=0.8, top_k=20)
SCHEMA = {"type": "object", "properties": {"b": {}, "a": {}}}
TOOL = {"name": "f", "description": "does f", "input_schema": SCHEMA}
SEARCH = {"type": "web_search_20250305", "name": "web_search", "max_uses": 8}
DEFERRED = {"name": "late", "input_schema": {"type": "object"}, "defer_loading": True}
REFERENCE = {"type": "tool_reference", "tool_name": "late"}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}


def parse(**fields: Any) -> ChatRequest:
    body = json.dumps({"messages": HELLO} | fields).encode()
    return parse_request(decode_json(body, MESSAGES), DEFAULTS)


def count(**fields: Any) -> ChatRequest:
    return parse_count(decode_json(json.dumps({"messages": HELLO} | fields).encode(), COUNT))


def text(value: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": value} | more


def result(content: Any, **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": "toolu_1", "content": content} | more


def call(**more: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"b": 1, "a": "ü"}} | more


def user(*content: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": list(content)}]


def assistant(*content: Any) -> list[dict[str, Any]]:
    return [{"role": "assistant", "content": list(content)}]


BAD_PROMPTS: list[tuple[str, dict[str, Any]]] = [
    ("messages", {"messages": None}),
    ("messages", {"messages": []}),
    ("messages", {"messages": "hello"}),
    ("messages[0]", {"messages": ["hello"]}),
    ("messages[0].role", {"messages": [{"content": "x"}]}),
    ("messages[0].role", {"messages": [{"role": "tool", "content": "x"}]}),
    ("messages[0].content", {"messages": [{"role": "user", "content": 5}]}),
    ("messages[0].content[1]", {"messages": user(text("x"), "x")}),
    ("messages[0].content[0].type", {"messages": user({"text": "x"})}),
    ("messages[0].content[0].type", {"messages": user({"type": None, "text": "x"})}),
    ("messages[0].content[0].type", {"messages": user({"type": 1})}),
    ("messages[0].content[0].text", {"messages": user({"type": "text"})}),
    ("messages[0].content[0].text", {"messages": user({"type": "text", "text": None})}),
    ("messages[1].content[0].text", {"messages": HELLO + assistant(text(1))}),  # type: ignore[arg-type]
    ("messages[0].content[1]", {"messages": user(text("x"), IMAGE)}),
    ("messages[0].content[0]", {"messages": user({"type": "document", "source": {}})}),
    ("messages[0].content[0]", {"messages": user({"type": "container_upload", "file_id": "x"})}),
    ("messages[0].content[0].content[1]", {"messages": user(result([text("x"), IMAGE]))}),
    ("messages[0].content[0].content[0].text", {"messages": user(result([{"type": "text"}]))}),
    ("messages[0].content[0].content[0]", {"messages": user(result([call()]))}),
    ("messages[0].content[0].content[0]", {"messages": user(result(["x"]))}),
    ("messages[0].content[0].content", {"messages": user(result(5))}),
    ("messages[0].content[0].tool_use_id", {"messages": user({"type": "tool_result"})}),
    ("messages[0].content[0].is_error", {"messages": user(result("x", is_error="yes"))}),
    ("messages[0].content[0].tool_name", {"messages": user({"type": "tool_reference"})}),
    ("messages[0].content[0]", {"messages": user(call())}),
    ("messages[0].content[0]", {"messages": assistant(result("x"))}),
    ("messages[0].content[0]", {"messages": [{"role": "system", "content": [result("x")]}]}),
    ("messages[0].content[0].id", {"messages": assistant(call(id=None))}),
    ("messages[0].content[0].name", {"messages": assistant(call(name=""))}),
    ("messages[0].content[0].name", {"messages": assistant(call(name="a b"))}),
    ("messages[0].content[0].input", {"messages": assistant(call(input="{}"))}),
    ("messages[0].content[0].input", {"messages": assistant(call(input=[]))}),
    ("messages[0].content[0].thinking", {"messages": assistant({"type": "thinking", "thinking": 1})}),
    ("system", {"system": 1}),
    ("system[0]", {"system": ["x"]}),
    ("system[1]", {"system": [text("x"), IMAGE]}),
    ("system[0].text", {"system": [{"type": "text"}]}),
    ("tools", {"tools": {}}),
    ("tools[0]", {"tools": ["f"]}),
    ("tools[0].name", {"tools": [{"input_schema": SCHEMA}]}),
    ("tools[0].name", {"tools": [TOOL | {"name": "a b"}]}),
    ("tools[0].name", {"tools": [TOOL | {"name": ""}]}),
    ("tools[0].type", {"tools": [{"type": 1, "name": "f"}]}),
    ("tools[1].input_schema", {"tools": [TOOL, {"name": "g"}]}),
    ("tools[0].input_schema", {"tools": [TOOL | {"input_schema": None}]}),
    ("tools[0].input_schema", {"tools": [TOOL | {"input_schema": "x"}]}),
    ("tools[0].description", {"tools": [TOOL | {"description": 1}]}),
    ("tools", {"tools": [TOOL, TOOL]}),
    ("tool_choice", {"tool_choice": "auto"}),
    ("tool_choice.type", {"tool_choice": {}}),
    ("tool_choice.type", {"tool_choice": {"type": "required"}}),
    ("tool_choice.name", {"tools": [TOOL], "tool_choice": {"type": "tool"}}),
    ("tool_choice", {"tools": [TOOL], "tool_choice": {"type": "tool", "name": "g"}}),
    ("tool_choice", {"tool_choice": {"type": "any"}}),
    ("tool_choice", {"tools": [], "tool_choice": {"type": "tool", "name": "f"}}),
    ("thinking", {"thinking": True}),
    ("thinking.type", {"thinking": {}}),
    ("thinking.type", {"thinking": {"type": "on"}}),
    ("thinking.budget_tokens", {"thinking": {"type": "enabled", "budget_tokens": 0}}),
    ("thinking.budget_tokens", {"thinking": {"type": "enabled", "budget_tokens": -5}}),
    ("thinking.budget_tokens", {"thinking": {"type": "enabled", "budget_tokens": 1.5}}),
    ("thinking.budget_tokens", {"thinking": {"type": "enabled", "budget_tokens": 2**63}}),
]
BAD_OPTIONS: list[tuple[str, dict[str, Any]]] = [
    ("model", {"model": 1}),
    ("stream", {"stream": "true"}),
    ("max_tokens", {"max_tokens": 0}),
    ("max_tokens", {"max_tokens": "5"}),
    ("max_completion_tokens", {"max_completion_tokens": 0}),
    ("temperature", {"temperature": 4.1}),
    ("top_p", {"top_p": 0}),
    ("top_k", {"top_k": -1}),
    ("min_p", {"min_p": 1}),
    ("seed", {"seed": 2**64}),
    ("stop", {"stop": 1}),
    ("stop_sequences", {"stop_sequences": "x"}),
    ("stop_sequences[1]", {"stop_sequences": ["x", ""]}),
    ("repetition_penalty", {"repetition_penalty": 0}),
    ("frequency_penalty", {"frequency_penalty": 3}),
    ("presence_penalty", {"presence_penalty": -3}),
    ("n", {"n": 2}),
    ("output_config", {"output_config": "x"}),
    ("output_config.format", {"output_config": {"format": {"type": "json_schema", "schema": {}}}}),
]


@pytest.mark.parametrize("read", [parse, count])
@pytest.mark.parametrize(("param", "fields"), BAD_PROMPTS)
def test_prompts_that_are_refused(read: Any, param: str, fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        read(**fields)
    assert (caught.value.status, caught.value.param) == (400, param)
    assert param in str(caught.value)


@pytest.mark.parametrize(("param", "fields"), BAD_OPTIONS)
def test_options_that_are_refused(param: str, fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        parse(**fields)
    assert (caught.value.status, caught.value.param) == (400, param)
    assert param in str(caught.value)
    assert count(**fields).messages == count().messages


CONVERSATIONS: list[tuple[list[dict[str, Any]], list[Message]]] = [
    ([{"role": "user", "content": "a"}], [Message("user", "a")]),
    ([{"role": "user", "content": None}], [Message("user", "")]),
    ([{"role": "user"}], [Message("user", "")]),
    (user(), [Message("user", "")]),
    (user(text("a", cache_control={"type": "ephemeral"}), text("b")), [Message("user", "a\nb")]),
    (user(text("a"), {"type": "brand_new", "content": [1]}, text("b")), [Message("user", "a\nb")]),
    ([{"role": "system", "content": "a"}], [Message("system", "a")]),
    (
        [*HELLO, {"role": "system", "content": [text("a"), text("b")]}],
        [Message("user", "hello"), Message("system", "a\nb")],
    ),
    ([{"role": "developer", "content": "a"}], [Message("system", "a")]),
    ([*HELLO, {"role": "system", "content": ""}], [Message("user", "hello")]),
    ([{"role": "assistant", "content": "a"}], [Message("assistant", "a")]),
    (assistant(text("a", citations=[{"x": 1}])), [Message("assistant", "a")]),
    (
        assistant({"type": "thinking", "thinking": "hm", "signature": ""}, text("a")),
        [Message("assistant", "a", thinking="hm")],
    ),
    (
        assistant(
            {"type": "thinking", "thinking": "hm", "signature": "Ev0xyz"},
            {"type": "thinking", "thinking": "so"},
        ),
        [Message("assistant", "", thinking="hm\nso")],
    ),
    (
        assistant({"type": "thinking", "thinking": "", "signature": "x"}, text("a")),
        [Message("assistant", "a")],
    ),
    (assistant({"type": "redacted_thinking", "data": "x"}, text("a")), [Message("assistant", "a")]),
    (assistant({"type": "redacted_thinking", "data": "x"}), [Message("assistant", "")]),
    (
        assistant({"type": "server_tool_use", "id": "x", "name": "web_search", "input": {}}, text("a")),
        [Message("assistant", "a")],
    ),
    (user({"type": "thinking", "thinking": "hm"}, text("a")), [Message("user", "a")]),
    (
        assistant(text("a"), call(), call(id="toolu_2", name="g", input=None)),
        [
            Message(
                "assistant",
                "a",
                tool_calls=(ToolCall("toolu_1", "f", '{"b":1,"a":"ü"}'), ToolCall("toolu_2", "g", "{}")),
            )
        ],
    ),
    (
        assistant(call(input={"z": [1.0, 2**70, None, True], "a": {"y": "\n", "b": ""}})),
        [
            Message(
                "assistant",
                "",
                tool_calls=(
                    ToolCall(
                        "toolu_1",
                        "f",
                        '{"z":[1.0,1180591620717411303424,null,true],"a":{"y":"\\n","b":""}}',
                    ),
                ),
            )
        ],
    ),
    (user(result("done")), [Message("tool", "done", tool_call_id="toolu_1")]),
    (user(result(None)), [Message("tool", "", tool_call_id="toolu_1")]),
    (user({"type": "tool_result", "tool_use_id": "x"}), [Message("tool", "", tool_call_id="x")]),
    (user(result([text("a"), text("b")])), [Message("tool", "a\nb", tool_call_id="toolu_1")]),
    (user(result("no", is_error=False)), [Message("tool", "no", tool_call_id="toolu_1")]),
    (user(result("no", is_error=None)), [Message("tool", "no", tool_call_id="toolu_1")]),
    (user(result("no", is_error=True)), [Message("tool", "Error: no", tool_call_id="toolu_1")]),
    (user(result([], is_error=True)), [Message("tool", "Error", tool_call_id="toolu_1")]),
    (
        user(result([REFERENCE])),
        [Message("tool", "The tool 'late' can be called now.", tool_call_id="toolu_1")],
    ),
    (
        user(
            result(
                [{"type": "search_result", "source": "s", "title": "t", "content": [text("a"), text("b")]}]
            )
        ),
        [Message("tool", "t\ns\na\nb", tool_call_id="toolu_1")],
    ),
    (
        user(text("before"), result("1", tool_use_id="b"), result("2", tool_use_id="a"), text("after")),
        [
            Message("tool", "1", tool_call_id="b"),
            Message("tool", "2", tool_call_id="a"),
            Message("user", "before\nafter"),
        ],
    ),
]


@pytest.mark.parametrize("read", [parse, count])
@pytest.mark.parametrize(("messages", "expected"), CONVERSATIONS)
def test_messages(read: Any, messages: list[dict[str, Any]], expected: list[Message]) -> None:
    assert read(messages=messages).messages == tuple(expected)


def test_deeply_nested_input_is_refused() -> None:
    deep: Any = {}
    for _ in range(100_000):
        deep = {"a": deep}
    body = MessagesRequest(messages=[WireMessage("assistant", [call(input=deep)])])
    with pytest.raises(InvalidRequestError, match="nested too deeply") as caught:
        parse_request(body, DEFAULTS)
    assert caught.value.param == "messages[0].content[0].input"


@pytest.mark.parametrize(
    ("system", "expected"),
    [
        (None, None),
        ("", None),
        ([], None),
        ("be nice", "be nice"),
        ([text("a", cache_control={"type": "ephemeral", "ttl": "1h"}), text("b")], "a\nb"),
        ([text("x-anthropic-billing-header: cc_version=1; cch=abc;"), text("a"), text("b")], "a\nb"),
        ([text("x-anthropic-billing-header: cc_version=1")], None),
        ([text("x-anthropic-billing-header: cc_version=1\n")], None),
        ([text("x-anthropic-billing-header: cc_version=1\n\na\n b")], "a\n b"),
        ("x-anthropic-billing-header: cc_version=1\na", "a"),
        ([text("no x-anthropic-billing-header here")], "no x-anthropic-billing-header here"),
    ],
)
def test_system(system: Any, expected: str | None) -> None:
    first = [] if expected is None else [Message("system", expected)]
    assert parse(system=system).messages == (*first, Message("user", "hello"))


def test_ids_marks_and_signatures_never_change_the_prompt() -> None:
    def conversation(mark: str) -> tuple[Message, ...]:
        cached = {"cache_control": {"type": "ephemeral"}} if mark else {}
        messages = [
            *HELLO,
            *assistant({"type": "thinking", "thinking": "hm", "signature": mark}, text("a", **cached)),
            *user(text("b", **cached)),
        ]
        return parse(messages=messages, system=[text("s", **cached)], metadata={"user_id": mark}).messages

    assert conversation("") == conversation("x")


F = Tool("f", "does f", SCHEMA)
LATE = Tool("late", "", {"type": "object"})


@pytest.mark.parametrize(
    ("fields", "tools", "choice"),
    [
        ({}, (), ToolChoice()),
        ({"tools": []}, (), ToolChoice()),
        ({"tools": [TOOL]}, (F,), ToolChoice()),
        ({"tools": [TOOL | {"type": "custom", "cache_control": {"type": "ephemeral"}}]}, (F,), ToolChoice()),
        ({"tools": [TOOL | {"type": None, "description": None}]}, (Tool("f", "", SCHEMA),), ToolChoice()),
        ({"tools": [SEARCH, TOOL]}, (F,), ToolChoice()),
        ({"tools": [{"type": "bash_20250124", "name": "bash"}]}, (), ToolChoice()),
        ({"tools": [{"type": "mcp_toolset", "mcp_server_name": "x"}]}, (), ToolChoice()),
        ({"tools": [TOOL, DEFERRED]}, (F,), ToolChoice()),
        ({"tools": [TOOL, DEFERRED], "messages": user(result([REFERENCE]))}, (F, LATE), ToolChoice()),
        ({"tools": [TOOL, DEFERRED], "messages": user(REFERENCE)}, (F, LATE), ToolChoice()),
        ({"tools": [DEFERRED | {"defer_loading": False}]}, (LATE,), ToolChoice()),
        (
            {"tools": [TOOL, DEFERRED], "tool_choice": {"type": "tool", "name": "late"}},
            (F, LATE),
            ToolChoice("required", "late"),
        ),
        ({"tools": [TOOL], "tool_choice": {"type": "auto"}}, (F,), ToolChoice()),
        ({"tools": [TOOL], "tool_choice": {"type": "none"}}, (F,), ToolChoice("none")),
        ({"tools": [TOOL], "tool_choice": {"type": "any"}}, (F,), ToolChoice("required")),
        (
            {"tools": [TOOL], "tool_choice": {"type": "any", "disable_parallel_tool_use": True}},
            (F,),
            ToolChoice("required"),
        ),
        (
            {"tools": [TOOL], "tool_choice": {"type": "tool", "name": "f"}},
            (F,),
            ToolChoice("required", "f"),
        ),
        ({"tools": [SEARCH], "tool_choice": {"type": "tool", "name": "web_search"}}, (), ToolChoice()),
        ({"tools": [SEARCH], "tool_choice": {"type": "any"}}, (), ToolChoice()),
        ({"tools": [SEARCH, TOOL], "tool_choice": {"type": "any"}}, (F,), ToolChoice("required")),
    ],
)
def test_tools(fields: dict[str, Any], tools: tuple[Tool, ...], choice: ToolChoice) -> None:
    for parsed in (parse(**fields), count(**fields)):
        assert (parsed.tools, parsed.tool_choice) == (tools, choice)


def test_schemas_keep_their_order() -> None:
    (tool,) = parse(tools=[TOOL]).tools
    assert list(tool.parameters["properties"]) == ["b", "a"]


@pytest.mark.parametrize(
    ("thinking", "wish"),
    [
        (None, ThinkingWish(on=False)),
        ({"type": "disabled"}, ThinkingWish(on=False)),
        ({"type": "disabled", "budget_tokens": 0}, ThinkingWish(on=False)),
        ({"type": "adaptive", "display": "summarized"}, ThinkingWish(on=True)),
        ({"type": "adaptive", "budget_tokens": 9}, ThinkingWish(on=True)),
        ({"type": "enabled"}, ThinkingWish(on=True)),
        ({"type": "enabled", "budget_tokens": None}, ThinkingWish(on=True)),
        ({"type": "enabled", "budget_tokens": 1}, ThinkingWish(on=True, budget=1)),
        ({"type": "enabled", "budget_tokens": 31999, "display": "omitted"}, ThinkingWish(True, 31999)),
    ],
)
def test_thinking(thinking: Any, wish: ThinkingWish) -> None:
    assert parse(thinking=thinking).thinking == count(thinking=thinking).thinking == wish


@pytest.mark.parametrize(
    ("fields", "max_tokens", "stop"),
    [
        ({}, None, ()),
        ({"max_tokens": 128_000}, 128_000, ()),
        ({"max_tokens": 5, "max_completion_tokens": 7}, 7, ()),
        ({"stop_sequences": ["z"]}, None, ("z",)),
        ({"stop": None, "stop_sequences": ["z"]}, None, ("z",)),
        ({"stop": "x", "stop_sequences": ["z"]}, None, ("x",)),
    ],
)
def test_limits(fields: dict[str, Any], max_tokens: int | None, stop: tuple[str, ...]) -> None:
    options = parse(**fields).options
    assert (options.max_tokens, options.stop) == (max_tokens, stop)


def test_sampling() -> None:
    assert parse(seed=3).options.sampling == msgspec.structs.replace(DEFAULTS, seed=3)
    made = parse(seed=3, temperature=0, top_p=1, top_k=5, min_p=0.5, frequency_penalty=1).options.sampling
    assert made == Sampling(0.0, 1.0, 5, 0.5, seed=3, frequency_penalty=1.0)


def test_other_fields_are_ignored() -> None:
    ignored = {
        "merge": False,
        "prompt_cache_key": 5,
        "metadata": {"user_id": '{"a": 1}'},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "output_config": {"effort": "high", "format": None},
        "betas": ["x"],
        "mcp_servers": [],
        "service_tier": "auto",
        "n": 1,
        "no_such_field": {"deep": [{}]},
    }
    assert parse(**ignored).messages == parse().messages


@pytest.mark.parametrize(("read", "kind"), [(parse, MessagesRequest), (count, CountRequest)])
def test_null_means_absent_everywhere(read: Any, kind: type[msgspec.Struct]) -> None:
    nulls = dict.fromkeys(kind.__struct_fields__)
    del nulls["messages"]
    assert read(**nulls).messages == (Message("user", "hello"),)
