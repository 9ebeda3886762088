"""The checker of Messages streams finds every break it is there for."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.wire.anthropic_events import BrokenStreamError, check_events, check_stream

Event = dict[str, Any]
USAGE: Event = {
    "input_tokens": 3,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 2,
    "output_tokens": 0,
}
MESSAGE: Event = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [],
    "stop_reason": None,
    "stop_sequence": None,
    "usage": USAGE,
}
START: Event = {"type": "message_start", "message": MESSAGE}
PING: Event = {"type": "ping"}
TEXT: Event = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
HELLO: Event = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hello"}}
STOP: Event = {"type": "content_block_stop", "index": 0}
THINKING: Event = {
    "type": "content_block_start",
    "index": 0,
    "content_block": {"type": "thinking", "thinking": "", "signature": ""},
}
THOUGHT: Event = {
    "type": "content_block_delta",
    "index": 0,
    "delta": {"type": "thinking_delta", "thinking": "x"},
}
SIGNED: Event = {
    "type": "content_block_delta",
    "index": 0,
    "delta": {"type": "signature_delta", "signature": "s"},
}
CALL: Event = {
    "type": "content_block_start",
    "index": 0,
    "content_block": {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}},
}
INPUT: Event = {
    "type": "content_block_delta",
    "index": 0,
    "delta": {"type": "input_json_delta", "partial_json": '{"a":'},
}
INPUT_END: Event = {
    "type": "content_block_delta",
    "index": 0,
    "delta": {"type": "input_json_delta", "partial_json": "1}"},
}
END: Event = {
    "type": "message_delta",
    "delta": {"stop_reason": "end_turn", "stop_sequence": None},
    "usage": USAGE | {"output_tokens": 4},
}
CALLED: Event = END | {"delta": {"stop_reason": "tool_use", "stop_sequence": None}}
DONE: Event = {"type": "message_stop"}
ERROR: Event = {"type": "error", "error": {"type": "api_error", "message": "no"}, "request_id": "msg_1"}


def test_good_streams() -> None:
    said = check_events([PING, START, PING, TEXT, HELLO, PING, HELLO, STOP, END, DONE])
    assert said.message is not None
    assert said.message["content"] == [{"type": "text", "text": "hellohello"}]
    assert (said.message["stop_reason"], said.message["usage"]["output_tokens"]) == ("end_turn", 4)
    assert (said.pings, said.error) == (3, None)
    said = check_events([START, CALL, INPUT, INPUT_END, STOP, CALLED, DONE])
    assert said.message is not None
    assert said.message["content"][0]["input"] == {"a": 1}
    assert check_events([START, THINKING, THOUGHT, SIGNED, STOP, END, DONE]).deltas == ["x"]
    assert check_events([START, END, DONE]).error is None
    for events in ([ERROR], [PING, ERROR], [START, TEXT, HELLO, ERROR], [START, THINKING, THOUGHT, ERROR]):
        assert check_events(events).error == ERROR


@pytest.mark.parametrize(
    ("events", "message"),
    [
        ([], "without message_stop"),
        ([START, TEXT, HELLO, STOP, END], "without message_stop"),
        ([TEXT], "content_block_start before message_start"),
        ([END], "message_delta before message_start"),
        ([DONE], "message_stop before message_start"),
        ([START, START], "second message_start"),
        ([START, DONE], "message_stop before message_delta"),
        ([START, END, END], "message_delta after message_delta"),
        ([START, END, TEXT], "content_block_start after message_delta"),
        ([START, END, DONE, PING], "ping after the end"),
        ([START, END, DONE, ERROR], "error after the end"),
        ([ERROR, DONE], "message_stop after the end"),
        ([START, HELLO], "content_block_delta outside of a block"),
        ([START, STOP], "content_block_stop outside of a block"),
        ([START, TEXT, HELLO, STOP, HELLO], "content_block_delta outside of a block"),
        ([START, TEXT, TEXT], "inside a block"),
        ([START, TEXT, END], "message_delta inside a block"),
        ([START, TEXT | {"index": 1}], "comes as number 0"),
        ([START, TEXT, STOP, TEXT], "comes as number 1"),
        ([START, TEXT, HELLO | {"index": 1}], "has index 1"),
        ([START, TEXT, STOP | {"index": 1}], "has index 1"),
        ([START, TEXT, THOUGHT], "a thinking_delta in a block of type text"),
        ([START, THINKING, HELLO], "a text_delta in a block of type thinking"),
        ([START, THINKING, THOUGHT, STOP], "without a signature"),
        ([START, THINKING, SIGNED, THOUGHT], "after the signature"),
        ([START, CALL, INPUT_END, STOP, CALLED], "Extra data"),
        ([START, CALL, STOP, END], "with calls: True"),
        ([START, CALLED], "with calls: False"),
        ([START, {"type": "content_block"}], "unknown event"),
        ([START, {"type": "message"}], "unknown event"),
        ([START | {"x": 1}], "exactly the fields"),
        ([START, END | {"usage": {"output_tokens": 1}}], "exactly the fields"),
        ([START, END | {"usage": USAGE | {"input_tokens": 5}}], "input_tokens has changed"),
        ([START, END | {"delta": {"stop_reason": "stop", "stop_sequence": None}}], "stop_reason is stop"),
        ([START, END | {"delta": {"stop_reason": "end_turn", "stop_sequence": "x"}}], "does not fit"),
    ],
)
def test_broken_order(events: list[Event], message: str) -> None:
    with pytest.raises((BrokenStreamError, ValueError), match=message):
        check_events(events)


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        (b'data: {"type": "ping"}\n\n', "not an event line"),
        (b'event: ping\ndata: {"type": "message_stop"}\n\n', "has data of type"),
        (b'event: ping\ndata: {"type": "ping"}\n', "ends inside an event"),
        (b": comment\n\n", "not an event line"),
        (b"data: [DONE]\n\n", "not an event line"),
    ],
)
def test_broken_framing(sent: bytes, message: str) -> None:
    with pytest.raises(BrokenStreamError, match=message):
        check_stream(sent)


def test_bytes_are_read() -> None:
    events = [START, TEXT, HELLO, STOP, END, DONE]
    sent = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
    assert check_stream(sent.encode()) == check_events(events)
