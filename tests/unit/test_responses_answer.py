"""Chat events as Responses streams and objects, checked by grammar and by the official types."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from mashbox.api.openai_answer import AnswerHead
from mashbox.api.responses_answer import ResponseStream, render_response
from mashbox.api.responses_body import ResponsesBody
from mashbox.api.responses_object import ResponseHead, echoed
from mashbox.api.responses_request import parse_request
from mashbox.chat.types import Begun, Block, Call, ChatEvent, Done, Text, Thinking, WholeAnswer, join_blocks
from mashbox.engine.types import FinishReason, Sampling, Usage
from mashbox.errors import (
    ContextLengthError,
    EngineError,
    InternalError,
    InvalidRequestError,
    OverloadedError,
    RequestError,
)
from tests.wire.responses_events import CheckedStream, check_stream

USAGE = Usage(
    prompt_tokens=10,
    cached_tokens=4,
    completion_tokens=7,
    queue_ms=1.0,
    prompt_ms=20.0,
    predicted_ms=40.0,
    reasoning_tokens=3,
)
STOP = Done(FinishReason.STOP, USAGE)
LENGTH = Done(FinishReason.LENGTH, USAGE)
TOOLS: list[dict[str, Any]] = [
    {"type": "function", "name": "look", "parameters": {"type": "object"}, "strict": False},
    {"type": "custom", "name": "apply_patch", "format": {"type": "text"}},
    {
        "type": "namespace",
        "name": "files",
        "description": "All about files.",
        "tools": [
            {"type": "function", "name": "read", "parameters": {"type": "object"}, "strict": False},
            {"type": "custom", "name": "edit"},
        ],
    },
]
EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)


def make_head(**fields: Any) -> ResponseHead:
    body = ResponsesBody(input="x", tools=TOOLS, **fields)
    request, tools = parse_request(body, Sampling())
    return ResponseHead(AnswerHead("resp_1", 1700000000, 'org/"model"'), echoed(body, request), tools)


def stream(events: list[ChatEvent], head: ResponseHead | None = None) -> bytes:
    renderer = ResponseStream(head or make_head())
    return renderer.start() + b"".join(map(renderer.event, [Begun(10, 4), *events]))


def checked(events: list[ChatEvent], head: ResponseHead | None = None) -> CheckedStream:
    """The stream's check, also by the official types; every event is told once."""
    result = check_stream(stream(events, head))
    for event in result.events:
        EVENT.validate_python(event, strict=True)
    return result


def whole(events: list[ChatEvent], head: ResponseHead | None = None) -> dict[str, Any]:
    *blocks, done = events
    assert isinstance(done, Done)
    kept: list[Block] = [block for block in blocks if isinstance(block, Thinking | Text | Call)]
    answer = render_response(head or make_head(), WholeAnswer(join_blocks(kept), done))
    response: dict[str, Any] = json.loads(msgspec.json.encode(answer))
    Response.model_validate(response, strict=True)
    return response


def anonymous(output: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The items without their random ids."""
    return [{k: v for k, v in item.items() if k not in ("id", "call_id")} for item in output]


def message(text: str) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {"type": "message", "role": "assistant", "status": "completed", "content": [part]}


def reasoning(text: str) -> dict[str, Any]:
    content = [{"type": "reasoning_text", "text": text}]
    return {"type": "reasoning", "summary": [], "status": "completed", "content": content}


def function_call(name: str, arguments: str, **more: str) -> dict[str, Any]:
    return {
        "type": "function_call",
        "status": "completed",
        "name": name,
        "arguments": arguments,
        **more,
    }


def custom_call(name: str, text: str, **more: str) -> dict[str, Any]:
    return {"type": "custom_tool_call", "status": "completed", "name": name, "input": text, **more}


ANSWERS: list[tuple[str, list[ChatEvent], list[dict[str, Any]]]] = [
    (
        "text",
        [Text("Hel"), Text('l"o\n'), Text("wörld \u2028 \U0001f600 \x00")],
        [message('Hell"o\nwörld \u2028 \U0001f600 \x00')],
    ),
    ("nothing", [], [message("")]),
    ("empty texts", [Text(""), Thinking(""), Text("")], [message("")]),
    ("only thinking", [Thinking("hm")], [reasoning("hm"), message("")]),
    ("thinking, then text", [Thinking("h"), Thinking("m"), Text("a")], [reasoning("hm"), message("a")]),
    ("thinking again", [Text("a"), Thinking("b"), Text("c")], [message("a"), reasoning("b"), message("c")]),
    (
        "an empty text parts nothing",
        [Thinking("a"), Text(""), Thinking("b"), Text("c")],
        [reasoning("ab"), message("c")],
    ),
    ("a call", [Call("look", '{"a": 1}')], [function_call("look", '{"a": 1}')]),
    (
        "calls",
        [Text("so:"), Call("look", "{}"), Call("look", "{}"), Text("b")],
        [message("so:"), function_call("look", "{}"), function_call("look", "{}"), message("b")],
    ),
    (
        "a call into a namespace",
        [Thinking("x"), Call("files__read", '{"p":"é"}')],
        [reasoning("x"), function_call("read", '{"p":"é"}', namespace="files")],
    ),
    (
        "a custom tool",
        [Call("apply_patch", '{"input": "*** Begin\\n"}')],
        [custom_call("apply_patch", "*** Begin\n")],
    ),
    ("a custom tool without input", [Call("apply_patch", '{"input":""}')], [custom_call("apply_patch", "")]),
    (
        "a custom tool called wrongly",
        [Call("apply_patch", '{"x": 1}')],
        [custom_call("apply_patch", '{"x": 1}')],
    ),
    (
        "a custom tool in a namespace",
        [Call("files__edit", '{"input":"a"}')],
        [custom_call("edit", "a", namespace="files")],
    ),
    ("an unknown tool", [Call("other", "{}")], [function_call("other", "{}")]),
]


@pytest.mark.parametrize(("events", "items"), [a[1:] for a in ANSWERS], ids=[a[0] for a in ANSWERS])
def test_answers(events: list[ChatEvent], items: list[dict[str, Any]]) -> None:
    told = checked([*events, STOP])
    assert anonymous(told.output) == items
    response = whole([*events, STOP])
    assert anonymous(response["output"]) == items
    assert response | {"output": []} == told.response | {"output": []}
    assert told.types[-1] == "response.completed"


@pytest.mark.parametrize(
    ("events", "items"),
    [
        ([], []),
        ([Thinking("hm")], [reasoning("hm")]),
        ([Text("ab")], [message("ab")]),
        ([Call("look", "{}")], [function_call("look", "{}")]),
    ],
)
def test_answers_cut_short(events: list[ChatEvent], items: list[dict[str, Any]]) -> None:
    told = checked([*events, LENGTH])
    response = whole([*events, LENGTH])
    assert anonymous(told.output) == anonymous(response["output"]) == items
    assert told.types[-1] == "response.incomplete"
    for final in (told.response, response):
        assert (final["status"], final["incomplete_details"]) == (
            "incomplete",
            {"reason": "max_output_tokens"},
        )


def test_the_order_of_events() -> None:
    told = checked([Thinking("a"), Text("b"), Text("c"), Call("look", "{}"), Call("apply_patch", "x"), STOP])
    assert [kind.removeprefix("response.") for kind in told.types] == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "reasoning_text.delta",
        "reasoning_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "output_item.added",
        "custom_tool_call_input.delta",
        "custom_tool_call_input.done",
        "output_item.done",
        "completed",
    ]


def test_the_response_object() -> None:
    head = make_head(
        instructions="Be kind.",
        parallel_tool_calls=True,
        tool_choice={"type": "function", "name": "look"},
        max_output_tokens=9,
        temperature=0.5,
        metadata={"a": "b"},
        prompt_cache_key="k",
    )
    assert whole([STOP], head) | {"output": []} == {
        "id": "resp_1",
        "object": "response",
        "created_at": 1700000000,
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "model": 'org/"model"',
        "output": [],
        "usage": {
            "input_tokens": 10,
            "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 0},
            "output_tokens": 7,
            "output_tokens_details": {"reasoning_tokens": 3},
            "total_tokens": 17,
        },
        "background": False,
        "instructions": "Be kind.",
        "max_output_tokens": 9,
        "metadata": {"a": "b"},
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "prompt_cache_key": "k",
        "reasoning": {"effort": None, "summary": None},
        "store": False,
        "temperature": 0.5,
        "text": {"format": {"type": "text"}},
        "tool_choice": {"type": "function", "name": "look"},
        "tools": TOOLS,
        "top_p": 1.0,
        "truncation": "disabled",
    }


def test_what_a_request_does_not_say_has_its_default() -> None:
    response = whole([STOP])
    assert response["parallel_tool_calls"] is False
    assert response["tool_choice"] == "auto"
    assert response["metadata"] == {}
    assert response["instructions"] is None
    assert response["max_output_tokens"] is None


def test_ids_are_never_the_same() -> None:
    events: list[ChatEvent] = [Text("a"), Call("look", "{}"), Call("apply_patch", "{}"), STOP]
    ids = [item["id"] for _ in range(3) for item in (*checked(events).output, *whole(events)["output"])]
    assert len(set(ids)) == len(ids) == 18


def test_keep_alives_have_the_next_number() -> None:
    renderer = ResponseStream(make_head())
    sent = renderer.start() + renderer.keep_alive() + renderer.event(Begun(10, 4)) + renderer.keep_alive()
    sent += renderer.event(Text("a")) + renderer.keep_alive() + renderer.event(Text("b"))
    told = check_stream(sent + renderer.event(STOP))
    assert told.keep_alives == 3
    assert anonymous(told.output) == [message("ab")]


@pytest.mark.parametrize(
    ("error", "code", "failure"),
    [
        (EngineError("The worker died."), "engine_error", "server_error"),
        (InternalError(), "internal_error", "server_error"),
        (OverloadedError("Full.", retry_after=1), "rate_limit_exceeded", "rate_limit_exceeded"),
        (ContextLengthError(9, 8), "context_length_exceeded", "context_length_exceeded"),
        (InvalidRequestError("No.", param="x"), None, "invalid_prompt"),
    ],
)
def test_a_stream_that_fails(error: RequestError, code: str | None, failure: str) -> None:
    renderer = ResponseStream(make_head())
    sent = renderer.start() + renderer.event(Thinking("a")) + renderer.event(Text("b"))
    told = check_stream(sent + renderer.failed(error))
    assert told.error is not None
    assert (told.error["code"], told.error["message"], told.error["param"]) == (code, str(error), error.param)
    assert told.response["error"] == {"code": failure, "message": str(error)}
    assert anonymous(told.output) == [reasoning("a")]
    EVENT.validate_python(told.error, strict=True)


def test_a_stream_that_fails_at_once() -> None:
    renderer = ResponseStream(make_head())
    told = check_stream(renderer.start() + renderer.failed(InternalError()))
    assert told.types == ["response.created", "response.in_progress", "error", "response.failed"]


PIECES = st.one_of(
    st.builds(Text, st.text(max_size=4)),
    st.builds(Thinking, st.text(max_size=4)),
    st.builds(Call, st.sampled_from(["look", "files__read", "apply_patch", "?"]), st.just('{"input":"i"}')),
)


@given(st.lists(PIECES, max_size=12), st.sampled_from([STOP, LENGTH]), st.data())
def test_any_cut_of_an_answer_gives_the_same_items(
    pieces: list[Block], done: Done, data: st.DataObject
) -> None:
    recut: list[ChatEvent] = []
    for piece in pieces:
        if isinstance(piece, Call):
            recut.append(piece)
            continue
        at = data.draw(st.integers(0, len(piece.text)))
        recut += [type(piece)(piece.text[:at]), type(piece)(piece.text[at:])]
    head = make_head()
    told = check_stream(stream([*recut, done], head))
    assert anonymous(told.output) == anonymous(whole([*pieces, done], head)["output"])
