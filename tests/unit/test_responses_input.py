"""Input items of the Responses route: what becomes of each, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from mashbox.api.responses_body import ResponsesBody
from mashbox.api.responses_request import parse_request
from mashbox.chat.types import ChatRequest, Message, ToolCall
from mashbox.engine.types import Sampling
from mashbox.errors import InvalidRequestError
from mashbox.http.body import decode_json

DECODER = msgspec.json.Decoder(ResponsesBody)


def parse(**fields: Any) -> ChatRequest:
    return parse_request(decode_json(json.dumps(fields).encode(), DECODER), Sampling())[0]


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def call(call_id: str, name: str = "look", arguments: str = "{}", **more: Any) -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments, **more}


def result(call_id: str, output: Any, kind: str = "function_call_output") -> dict[str, Any]:
    return {"type": kind, "call_id": call_id, "output": output}


def thought(*texts: str) -> dict[str, Any]:
    content = [{"type": "reasoning_text", "text": text} for text in texts]
    return {"type": "reasoning", "id": "rs_1", "summary": [], "content": content}


U = Message("user", "u")
CUSTOM = {"type": "custom", "name": "apply_patch"}

MESSAGES: list[tuple[str, dict[str, Any], list[Message]]] = [
    ("a string", {"input": "hi"}, [Message("user", "hi")]),
    ("an empty string", {"input": ""}, [Message("user", "")]),
    (
        "instructions",
        {"instructions": "Be.", "input": "hi"},
        [Message("system", "Be."), Message("user", "hi")],
    ),
    ("no instructions", {"instructions": "", "input": "hi"}, [Message("user", "hi")]),
    (
        "roles",
        {
            "instructions": "i",
            "input": [
                {"type": "message", "role": "developer", "content": "d"},
                {"role": "system", "content": "s"},
                {"type": None, "role": "user", "content": "u"},
                {"role": "assistant", "content": "a"},
            ],
        },
        [
            Message("system", "i"),
            Message("system", "d"),
            Message("system", "s"),
            U,
            Message("assistant", "a"),
        ],
    ),
    (
        "parts",
        {
            "input": [
                user([{"type": "input_text", "text": "a"}, {"type": "text", "text": "b"}]),
                {
                    "type": "message",
                    "id": "msg_1",
                    "status": "completed",
                    "phase": "final_answer",
                    "role": "assistant",
                    "content": [
                        {"type": "output_text", "text": "c", "annotations": [], "logprobs": None},
                        {"type": "refusal", "refusal": "d"},
                    ],
                },
                user([]),
                user(None),
            ]
        },
        [Message("user", "a\nb"), Message("assistant", "c\nd"), Message("user", ""), Message("user", "")],
    ),
    (
        "a call and its result",
        {"input": [user("u"), call("c1", arguments='{"a":1}'), result("c1", "out")]},
        [
            U,
            Message("assistant", "", tool_calls=(ToolCall("c1", "look", '{"a":1}'),)),
            Message("tool", "out", tool_call_id="c1"),
        ],
    ),
    (
        "results as parts, as nothing, and in any order",
        {
            "input": [
                call("c1", arguments=""),
                call("c2"),
                result("c2", [{"type": "input_text", "text": "x"}, {"type": "output_text", "text": "y"}]),
                result("c1", None),
            ]
        },
        [
            Message("assistant", "", tool_calls=(ToolCall("c1", "look", "{}"), ToolCall("c2", "look", "{}"))),
            Message("tool", "x\ny", tool_call_id="c2"),
            Message("tool", "", tool_call_id="c1"),
        ],
    ),
    (
        "neighbouring items of the assistant",
        {
            "input": [
                user("u"),
                thought("t", "h"),
                {"role": "assistant", "content": "a"},
                call("c1"),
                {"role": "assistant", "content": "b"},
                thought("i"),
                call("c2"),
                result("c1", "1"),
                thought("j"),
                {"role": "assistant", "content": "c"},
            ]
        },
        [
            U,
            Message(
                "assistant",
                "a\n\nb",
                "t\n\nh\n\ni",
                (ToolCall("c1", "look", "{}"), ToolCall("c2", "look", "{}")),
            ),
            Message("tool", "1", tool_call_id="c1"),
            Message("assistant", "c", "j"),
        ],
    ),
    (
        "thinking that is not told, or leads nowhere",
        {
            "input": [
                {"type": "reasoning", "summary": None, "content": None, "encrypted_content": "x"},
                {"role": "assistant", "content": "a"},
                {"type": "reasoning", "summary": [{"type": "summary_text", "text": "s"}]},
                user("u"),
                thought("lost"),
                user("u"),
                {
                    "type": "reasoning",
                    "content": [{"type": "other"}, {"type": "text", "text": "t"}, {"type": "text"}],
                },
                {"role": "assistant", "content": ""},
                user("u"),
                thought("lost"),
            ]
        },
        [Message("assistant", "a"), U, U, Message("assistant", "", "t"), U],
    ),
    (
        "a custom tool",
        {
            "tools": [CUSTOM],
            "input": [
                {"type": "custom_tool_call", "call_id": "c1", "name": "apply_patch", "input": 'a"\n'},
                result("c1", "done", "custom_tool_call_output"),
            ],
        },
        [
            Message("assistant", "", tool_calls=(ToolCall("c1", "apply_patch", '{"input":"a\\"\\n"}'),)),
            Message("tool", "done", tool_call_id="c1"),
        ],
    ),
    (
        "calls of tools in namespaces, declared or not",
        {
            "tools": [
                {"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "look"}]},
                {"type": "function", "name": "n__look"},
            ],
            "input": [
                call("c1", namespace="n"),
                call("c2", "n__look"),
                call("c3", "x", namespace="mcp__y__"),
            ],
        },
        [
            Message(
                "assistant",
                "",
                tool_calls=(
                    ToolCall("c1", "n__look_2", "{}"),
                    ToolCall("c2", "n__look", "{}"),
                    ToolCall("c3", "mcp__y__x", "{}"),
                ),
            )
        ],
    ),
    (
        "the local shell",
        {
            "input": [
                {
                    "type": "local_shell_call",
                    "id": "lsh_1",
                    "call_id": "c1",
                    "status": "completed",
                    "action": {"type": "exec", "command": ["ls", "-l"], "env": {}, "user": None},
                },
                {"type": "local_shell_call", "call_id": "c2", "action": {"command": ["a"]}},
                {"type": "local_shell_call_output", "id": "lsh_1", "output": "x"},
                {"type": "local_shell_call_output", "call_id": "c2", "id": "o", "output": "y"},
            ]
        },
        [
            Message(
                "assistant",
                "",
                tool_calls=(
                    ToolCall("c1", "local_shell", '{"command":["ls","-l"],"env":{}}'),
                    ToolCall("c2", "local_shell", '{"command":["a"]}'),
                ),
            ),
            Message("tool", "x", tool_call_id="c1"),
            Message("tool", "y", tool_call_id="c2"),
        ],
    ),
    (
        "items that say nothing",
        {
            "input": [
                {"type": "web_search_call", "id": "ws_1", "status": "completed"},
                {"role": "assistant", "content": "a"},
                {"type": "no_such_item", "content": 5, "role": 7},
                {"type": "additional_tools", "role": "developer", "tools": []},
                call("c1"),
                user("u"),
            ]
        },
        [Message("assistant", "a", tool_calls=(ToolCall("c1", "look", "{}"),)), U],
    ),
]


@pytest.mark.parametrize(("fields", "messages"), [m[1:] for m in MESSAGES], ids=[m[0] for m in MESSAGES])
def test_messages(fields: dict[str, Any], messages: list[Message]) -> None:
    assert list(parse(**fields).messages) == messages


IMAGE = {"type": "input_image", "image_url": "data:"}

REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("input", {"input": None}),
    ("input", {"input": []}),
    ("input", {"input": 5}),
    ("input", {"input": [{"type": "web_search_call"}]}),
    ("input", {"input": [thought("x")]}),
    ("input[0]", {"input": ["hello"]}),
    ("input[1].type", {"input": [user("x"), {"id": "msg_1"}]}),
    ("input[0].type", {"input": [{"type": 5, "role": "user", "content": "x"}]}),
    ("input[0].role", {"input": [{"role": "tool", "content": "x"}]}),
    ("input[0].role", {"input": [{"type": "message", "content": "x"}]}),
    ("input[0].content", {"input": [user(5)]}),
    ("input[0].content[0]", {"input": [user(["x"])]}),
    ("input[0].content[1]", {"input": [user([{"type": "input_text", "text": "x"}, IMAGE])]}),
    ("input[0].content[0]", {"input": [user([{"type": "input_audio", "input_audio": {}}])]}),
    ("input[0].content[0]", {"input": [user([{"type": "input_file", "file_id": "x"}])]}),
    ("input[0].content[0].text", {"input": [user([{"type": "input_text"}])]}),
    ("input[0].content[0].text", {"input": [user([{"type": "input_text", "text": 1}])]}),
    ("input[0].content[0].type", {"input": [user([{"text": "x"}])]}),
    ("input[1].output[0]", {"input": [call("c"), result("c", [IMAGE])]}),
    ("input[0].output", {"input": [result("c", 5)]}),
    ("input[0].output[0]", {"input": [result("c", [IMAGE], "custom_tool_call_output")]}),
    ("input[0].call_id", {"input": [{"type": "function_call", "name": "x", "arguments": "{}"}]}),
    ("input[0].call_id", {"input": [{"type": "function_call_output", "output": ""}]}),
    ("input[0].name", {"input": [{"type": "function_call", "call_id": "c", "arguments": "{}"}]}),
    ("input[0].name", {"input": [call("c", "a b")]}),
    ("input[0].input", {"input": [{"type": "custom_tool_call", "call_id": "c", "name": "x"}]}),
    ("input[0].action", {"input": [{"type": "local_shell_call", "call_id": "c"}]}),
    ("input[0].call_id", {"input": [{"type": "local_shell_call", "action": {}}]}),
    ("input[0].call_id", {"input": [{"type": "local_shell_call_output", "output": ""}]}),
    ("input[0].content", {"input": [{"type": "reasoning", "content": "x"}, user("x")]}),
    ("input[0]", {"input": [{"type": "item_reference", "id": "msg_1"}, user("x")]}),
    ("input[0].tools", {"input": [{"type": "additional_tools", "role": "developer"}, user("x")]}),
    ("input[0].tools[0].name", {"input": [{"type": "additional_tools", "tools": [{"type": "function"}]}]}),
]


@pytest.mark.parametrize(("param", "fields"), REFUSED)
def test_refused(param: str, fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        parse(**fields)
    assert (caught.value.status, caught.value.param) == (400, param)
    assert param in str(caught.value)


def test_a_request_as_codex_sends_it() -> None:
    request = parse(
        input=[
            {
                "type": "additional_tools",
                "role": "developer",
                "tools": [
                    CUSTOM | {"format": {"type": "grammar", "syntax": "lark", "definition": "start: x"}}
                ],
            },
            {
                "type": "message",
                "role": "developer",
                "content": [{"type": "input_text", "text": "rules"}],
                "internal_chat_message_metadata": {},
            },
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go"}]},
            {"type": "reasoning", "id": "rs_1", "summary": [], "content": None, "encrypted_content": None},
            {
                "type": "custom_tool_call",
                "status": "completed",
                "call_id": "c",
                "name": "apply_patch",
                "input": "p",
            },
            {
                "type": "custom_tool_call_output",
                "call_id": "c",
                "output": [{"type": "input_text", "text": "ok"}],
            },
        ],
        tools=[
            {"type": "function", "name": "shell", "strict": False, "parameters": {"type": "object"}},
            {"type": "web_search", "external_web_access": False, "name": 5},
            {"type": "tool_search", "execution": "client", "description": "x", "parameters": "y"},
        ],
        tool_choice="auto",
        parallel_tool_calls=True,
        reasoning={"summary": "auto", "context": "all"},
        store=False,
        stream=True,
        include=["reasoning.encrypted_content"],
        prompt_cache_key="k",
        client_metadata={"a": "b"},
        text={"verbosity": "medium"},
    )
    assert [tool.name for tool in request.tools] == ["shell", "apply_patch"]
    assert list(request.messages) == [
        Message("system", "rules"),
        Message("user", "go"),
        Message("assistant", "", tool_calls=(ToolCall("c", "apply_patch", '{"input":"p"}'),)),
        Message("tool", "ok", tool_call_id="c"),
    ]
