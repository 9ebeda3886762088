"""Tools and thinking on the chat route: what clients send, and what they read."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from mashbox.api.openai_answer import AnswerHead
from mashbox.api.openai_chat import ChatCompletionRequest, ChatStream, parse_request, render_response
from mashbox.chat.types import (
    Begun,
    Block,
    Call,
    ChatEvent,
    ChatRequest,
    Done,
    Message,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolChoice,
    WholeAnswer,
    join_blocks,
)
from mashbox.engine.types import FinishReason, Sampling, Usage
from mashbox.errors import InvalidRequestError
from mashbox.http.body import decode_json
from tests.wire.chat_events import Folded, read_chat_stream

HEAD = AnswerHead("chatcmpl-1", 1700000000, "model")
USAGE = Usage(10, 4, 3, queue_ms=1.0, prompt_ms=20.0, predicted_ms=40.0)
PARAMETERS = {"type": "object", "properties": {"path": {"type": "string"}}}
DECODER = msgspec.json.Decoder(ChatCompletionRequest)
NASTY = '{"text": "a \\"quoted\\" </tool_call>\\n\\u00e9 \U0001f600", "n": [1, {}]}'


def parse(**fields: Any) -> ChatRequest:
    body = {"messages": [{"role": "user", "content": "hello"}]} | fields
    return parse_request(decode_json(json.dumps(body).encode(), DECODER), Sampling())


def function(name: str, **fields: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name} | fields}


def test_tools_are_read_and_what_cannot_run_here_is_left_out() -> None:
    tools = [
        function("read", description="Read a file.", parameters=PARAMETERS, strict=True),
        {"type": "web_search"},
        function("list", description=None, parameters=None),
    ]
    assert parse(tools=tools).tools == (Tool("read", "Read a file.", PARAMETERS), Tool("list"))
    assert parse(tools=None).tools == ()


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (None, ToolChoice()),
        ("auto", ToolChoice("auto")),
        ("none", ToolChoice("none")),
        ("required", ToolChoice("required")),
        ({"type": "function", "function": {"name": "read"}}, ToolChoice("required", "read")),
    ],
)
def test_tool_choice(choice: Any, expected: ToolChoice) -> None:
    assert parse(tools=[function("read")], tool_choice=choice).tool_choice == expected


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [function("a")], "tool_choice": "any"}, "tool_choice"),
        ({"tools": [function("a")], "tool_choice": function("b")}, "tool_choice"),
        ({"tools": [function("a"), function("a")]}, "tools"),
        ({"tools": [function("")]}, "tools[0].function.name"),
        ({"tools": [function("a b")]}, "tools[0].function.name"),
        ({"tools": "all"}, "tools"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].tool_call_id"),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"id": "c"}]}]},
            "messages[0].tool_calls[0].function",
        ),
        ({"chat_template_kwargs": {"enable_thinking": "yes"}}, "chat_template_kwargs.enable_thinking"),
    ],
)
def test_bad_tools_are_named(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        parse(**fields)
    assert caught.value.param == param


def test_calls_results_and_thinking_in_history() -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "read", "arguments": NASTY}}
    spelled = {"id": "call_2", "type": "function", "function": {"name": "list", "arguments": {"a": 1}}}
    bare = {"id": "call_3", "type": "function", "function": {"name": "list"}}
    messages = [
        {"role": "user", "content": "go"},
        {
            "role": "assistant",
            "content": None,
            "reasoning_content": "hm",
            "tool_calls": [call, spelled, bare],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "one"}]},
        {"role": "tool", "tool_call_id": "call_2", "content": ""},
        {"role": "user", "content": "more", "reasoning_content": "not mine", "tool_calls": [call]},
    ]
    calls = (
        ToolCall("call_1", "read", NASTY),
        ToolCall("call_2", "list", '{"a":1}'),
        ToolCall("call_3", "list", "{}"),
    )
    assert parse(messages=messages).messages == (
        Message("user", "go"),
        Message("assistant", "", "hm", calls),
        Message("tool", "one", tool_call_id="call_1"),
        Message("tool", "", tool_call_id="call_2"),
        Message("user", "more"),
    )


ANSWERS: list[list[Block]] = [
    [Text("plain")],
    [Thinking("first "), Thinking("thought"), Text("then "), Text("text")],
    [Text("before"), Call("read", NASTY)],
    [Thinking("t"), Call("a", "{}"), Call("b", '{"x": 1}'), Call("a", "{}")],
    [Thinking("t"), Text("x"), Thinking("again"), Text("y")],
    [Thinking("never closed")],
    [],
]


def done(blocks: list[Block]) -> Done:
    calls = sum(isinstance(block, Call) for block in blocks)
    return Done(FinishReason.STOP, USAGE, calls=calls)


@pytest.mark.parametrize("blocks", ANSWERS)
@pytest.mark.parametrize("include_usage", [False, True])
def test_streamed_and_whole_say_the_same(blocks: list[Block], include_usage: bool) -> None:
    stream = ChatStream(HEAD, include_usage)
    events: list[ChatEvent] = [Begun(10, 4), *blocks, done(blocks)]
    raw = (stream.start() + b"".join(map(stream.event, events))).decode()
    for line in raw.split("\n\n")[:-2]:
        ChatCompletionChunk.model_validate(json.loads(line.removeprefix("data: ")))
    streamed = read_chat_stream(raw, include_usage=include_usage)
    whole = render_response(HEAD, WholeAnswer(join_blocks(blocks), done(blocks)))
    assert bare(streamed) == bare(fold(whole))


def fold(whole: dict[str, Any]) -> Folded:
    body = json.loads(msgspec.json.encode(whole))
    ChatCompletion.model_validate(body)
    (choice,) = body["choices"]
    message = choice["message"]
    calls = [{"id": call["id"], **call["function"]} for call in message.get("tool_calls", ())]
    return Folded(
        message["content"] or "", message.get("reasoning_content", ""), calls, choice["finish_reason"]
    )


def bare(folded: Folded) -> tuple[Any, ...]:
    """All but the ids, which are random."""
    calls = [(call["name"], call["arguments"]) for call in folded.calls]
    return folded.content, folded.reasoning, calls, folded.finish_reason


def test_content_is_null_only_beside_calls() -> None:
    def content(*blocks: Block) -> Any:
        whole = WholeAnswer(join_blocks(blocks), done(list(blocks)))
        return render_response(HEAD, whole)["choices"][0]["message"]["content"]

    assert content() == ""
    assert content(Call("a", "{}")) is None
    assert content(Text("x"), Call("a", "{}")) == "x"


def test_a_cut_call_free_answer_ends_with_length() -> None:
    stream = ChatStream(HEAD, include_usage=False)
    raw = stream.start() + stream.event(Text("x")) + stream.event(Done(FinishReason.LENGTH, USAGE))
    assert read_chat_stream(raw.decode()).finish_reason == "length"
