"""Chat events as Anthropic clients read them, streamed and whole."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from anthropic.types import Message, RawMessageStreamEvent
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from mashbox.api.anthropic_answer import MessageHead, MessageStream, new_head, render_message
from mashbox.chat.types import Begun, Block, Call, ChatEvent, Done, Text, Thinking, WholeAnswer, join_blocks
from mashbox.engine.types import FinishReason, Usage
from mashbox.errors import ContextLengthError, EngineError
from tests.wire.anthropic_events import Streamed, check_stream, read_events

HEAD = MessageHead("msg_1", 'org/"model"')
USAGE = Usage(
    prompt_tokens=10, cached_tokens=4, completion_tokens=3, queue_ms=1.0, prompt_ms=20.0, predicted_ms=40.0
)
BEGUN = Begun(prompt_tokens=10, cached_tokens=4)
COUNTS = {
    "input_tokens": 6,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 4,
    "output_tokens": 3,
}
NASTY = 'wörld "\\ \n\u2028 \U0001f600 \x00 </tool_call>'
ARGUMENTS = '{"path" : "a\\n\\u00fc", "n": 1.0,\n "big": 1180591620717411303424, "o": {}}'
EVENT: TypeAdapter[RawMessageStreamEvent] = TypeAdapter(RawMessageStreamEvent)


def done(blocks: list[Block], reason: FinishReason = FinishReason.STOP, stop: str | None = None) -> Done:
    return Done(reason, USAGE, stop, sum(isinstance(block, Call) for block in blocks))


def stream(blocks: list[Block], end: Done) -> bytes:
    renderer = MessageStream(HEAD)
    events: list[ChatEvent] = [BEGUN, *blocks, end]
    return renderer.start() + b"".join(map(renderer.event, events))


def whole(blocks: list[Block], end: Done) -> dict[str, Any]:
    body = render_message(HEAD, WholeAnswer(join_blocks(blocks), end))
    decoded: dict[str, Any] = json.loads(msgspec.json.encode(body))
    return decoded


def checked(blocks: list[Block], end: Done) -> Streamed:
    """The stream, checked against its grammar, the official types, and the whole answer."""
    sent = stream(blocks, end)
    for event in read_events(sent):
        if event["type"] != "ping":
            EVENT.validate_python(event, strict=True)
    streamed = check_stream(sent)
    body = whole(blocks, end)
    Message.model_validate(body, strict=True)
    assert streamed.message is not None
    assert without_ids(streamed.message) == without_ids(body)
    return streamed


def without_ids(message: dict[str, Any]) -> dict[str, Any]:
    content = [{name: value for name, value in block.items() if name != "id"} for block in message["content"]]
    return message | {"content": content}


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def thinking(value: str) -> dict[str, Any]:
    return {"type": "thinking", "thinking": value, "signature": "mashbox-local"}


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "name": name, "input": arguments}


@pytest.mark.parametrize(
    ("blocks", "content"),
    [
        ([], []),
        ([Text("")], []),
        ([Thinking(""), Text("")], []),
        ([Text("Hel"), Text(""), Text("lo")], [text("Hello")]),
        ([Text(NASTY), Text(NASTY)], [text(NASTY * 2)]),
        ([Thinking("h"), Thinking("m")], [thinking("hm")]),
        ([Thinking("h"), Text(""), Thinking("m")], [thinking("hm")]),
        ([Thinking(NASTY), Text("a")], [thinking(NASTY), text("a")]),
        ([Text("a"), Thinking("b"), Text("c")], [text("a"), thinking("b"), text("c")]),
        ([Call("f", "{}")], [call("f")]),
        ([Call("f", '{"a": 1}'), Call("g", "{}")], [call("f", a=1), call("g")]),
        (
            [Thinking("hm"), Text("so"), Call("f", "{}"), Text("then"), Call("f", "{}")],
            [thinking("hm"), text("so"), call("f"), text("then"), call("f")],
        ),
        ([Thinking("hm"), Call("f", "{}")], [thinking("hm"), call("f")]),
    ],
)
def test_content(blocks: list[Block], content: list[dict[str, Any]]) -> None:
    message = checked(blocks, done(blocks)).message
    assert message is not None
    assert without_ids(message)["content"] == content
    assert len({block["id"] for block in message["content"] if "id" in block}) == sum(
        block["type"] == "tool_use" for block in content
    )


PARTS = st.one_of(
    st.builds(Text, st.text(max_size=5)),
    st.builds(Thinking, st.text(max_size=5)),
    st.builds(
        lambda name, fields: Call(name, json.dumps(fields)),
        st.sampled_from("fg"),
        st.dictionaries(st.text(max_size=3), st.text(max_size=5), max_size=2),
    ),
)


@given(st.lists(PARTS, max_size=8))
def test_any_answer_is_the_same_streamed_and_whole(blocks: list[Block]) -> None:
    checked(blocks, done(blocks))


def test_arguments_are_exact() -> None:
    sent = stream([Call("f", ARGUMENTS)], done([Call("f", ARGUMENTS)]))
    assert check_stream(sent).deltas == [ARGUMENTS]
    body = render_message(HEAD, WholeAnswer((Call("f", ARGUMENTS),), done([])))
    assert ARGUMENTS.encode() in msgspec.json.encode(body)


@pytest.mark.parametrize(
    ("reason", "stop", "calls", "expected"),
    [
        (FinishReason.STOP, None, 0, ("end_turn", None)),
        (FinishReason.LENGTH, None, 0, ("max_tokens", None)),
        (FinishReason.STOP_STRING, "\n\n", 0, ("stop_sequence", "\n\n")),
        (FinishReason.STOP, None, 1, ("tool_use", None)),
        (FinishReason.LENGTH, None, 1, ("tool_use", None)),
        (FinishReason.STOP_STRING, "x", 2, ("tool_use", None)),
    ],
)
def test_why_it_ended(reason: FinishReason, stop: str | None, calls: int, expected: tuple[str, Any]) -> None:
    blocks: list[Block] = [Text("a"), *[Call("f", "{}")] * calls]
    message = checked(blocks, done(blocks, reason, stop)).message
    assert message is not None
    assert (message["stop_reason"], message["stop_sequence"]) == expected


def test_the_message_around() -> None:
    body = whole([Text("a")], done([]))
    assert body == {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": 'org/"model"',
        "content": [text("a")],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": COUNTS,
    }
    start, ping, *_, end, stop = read_events(stream([Text("a")], done([])))
    assert start["message"] == body | {
        "content": [],
        "stop_reason": None,
        "usage": COUNTS | {"output_tokens": 0},
    }
    assert ping == {"type": "ping"}
    assert end["usage"] == COUNTS
    assert stop == {"type": "message_stop"}
    assert new_head("1f", "m") == MessageHead("msg_1f", "m")


def test_every_piece_is_sent_at_once() -> None:
    renderer = MessageStream(HEAD)
    renderer.event(BEGUN)
    for piece, parts in ((Thinking("a"), 2), (Thinking("b"), 1), (Text("c"), 4), (Text("d"), 1)):
        sent = renderer.event(piece)
        assert json.dumps(piece.text).encode() in sent
        assert sent.count(b"event: ") == parts


@pytest.mark.parametrize("before", [[], [BEGUN], [BEGUN, Thinking("a")], [BEGUN, Call("f", "{}"), Text("a")]])
def test_a_stream_that_fails(before: list[ChatEvent]) -> None:
    renderer = MessageStream(HEAD)
    sent = renderer.keep_alive() + b"".join(map(renderer.event, before))
    streamed = check_stream(sent + renderer.keep_alive() + renderer.failed(EngineError("The worker died.")))
    assert streamed.error == {
        "type": "error",
        "error": {"type": "api_error", "message": "The worker died."},
        "request_id": "msg_1",
    }
    assert streamed.pings == 2 + bool(before)


def test_a_late_refusal_has_its_own_words() -> None:
    streamed = check_stream(MessageStream(HEAD).failed(ContextLengthError(9, 8)))
    assert streamed.error is not None
    assert streamed.error["error"] == {
        "type": "invalid_request_error",
        "message": "prompt is too long: 9 tokens > 7 maximum",
    }
