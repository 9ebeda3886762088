"""The grammar of a streamed Anthropic message: `check_stream` raises on any break of it.

    stream  = ping* (message | failed)
    message = message_start block* message_delta message_stop
    block   = content_block_start content_block_delta* content_block_stop
    failed  = any beginning of a message, then error

with pings between any two events but not after the end.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

EVENTS = {
    "ping",
    "error",
    "message_start",
    "content_block_start",
    "content_block_delta",
    "content_block_stop",
    "message_delta",
    "message_stop",
}
STOP_REASONS = {"end_turn", "max_tokens", "stop_sequence", "tool_use"}
USAGE = {"input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens"}
NEW_MESSAGE: dict[str, Any] = {
    "type": "message",
    "role": "assistant",
    "content": [],
    "stop_reason": None,
    "stop_sequence": None,
}
EMPTY_BLOCKS: dict[str, dict[str, Any]] = {
    "text": {"type": "text", "text": ""},
    "thinking": {"type": "thinking", "thinking": "", "signature": ""},
    "tool_use": {"type": "tool_use", "input": {}},
}
DELTAS = {
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "thinking"),
    "signature_delta": ("thinking", "signature"),
    "input_json_delta": ("tool_use", "partial_json"),
}
"""For each type of delta the type of its block, and the field with the new text."""


class BrokenStreamError(AssertionError):
    """The stream is not one that the official API could have sent."""


@dataclass
class Streamed:
    """What a stream said, folded: the message as a whole answer would be, or the error."""

    message: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    pings: int = 0
    deltas: list[str] = field(default_factory=list)
    """The text of every delta but signatures, in order."""


def check_stream(sent: bytes) -> Streamed:
    """Read a whole stream and check all of it."""
    return check_events(read_events(sent))


def read_events(sent: bytes) -> list[dict[str, Any]]:
    """The data of every event; each must be a line with its type, a line of JSON and a blank line."""
    *blocks, end = sent.split(b"\n\n")
    _require(end == b"", f"the stream ends inside an event: {end!r}")
    return [_read_event(block) for block in blocks]


def _read_event(block: bytes) -> dict[str, Any]:
    lines = block.split(b"\n")
    _require(
        len(lines) == 2 and lines[0].startswith(b"event: ") and lines[1].startswith(b"data: "),
        f"not an event line and a data line: {block!r}",
    )
    data = json.loads(lines[1][6:])
    name = lines[0][7:].decode()
    _require(data.get("type") == name, f"event '{name}' has data of type '{data.get('type')}'")
    assert isinstance(data, dict)
    return data


def check_events(events: list[dict[str, Any]]) -> Streamed:
    """Check the events of a whole stream, and fold them."""
    checker = _Checker()
    for event in events:
        checker.take(event)
    _require(checker.ended, "the stream ends without message_stop or error")
    return checker.streamed


class _Checker:
    def __init__(self) -> None:
        self.ended = False
        self.streamed = Streamed()
        self._block: dict[str, Any] | None = None
        self._input = ""
        self._delta_seen = False

    def take(self, event: dict[str, Any]) -> None:
        kind = event["type"]
        _require(not self.ended, f"{kind} after the end")
        _require(kind in EVENTS, f"unknown event {kind}")
        getattr(self, f"_{kind}")(event)

    def _ping(self, event: dict[str, Any]) -> None:
        _require(event == {"type": "ping"}, f"a ping with more in it: {event}")
        self.streamed.pings += 1

    def _error(self, event: dict[str, Any]) -> None:
        _keys(event, {"type", "error", "request_id"})
        _keys(event["error"], {"type", "message"})
        self.streamed.error = event
        self.ended = True

    def _message_start(self, event: dict[str, Any]) -> None:
        _keys(event, {"type", "message"})
        _require(self.streamed.message is None, "a second message_start")
        message = event["message"]
        _keys(message, {*NEW_MESSAGE, "id", "model", "usage"})
        _require(
            NEW_MESSAGE.items() <= message.items(), f"message_start is not that of a new message: {message}"
        )
        _require(message["id"].startswith("msg_"), f"a message's id is {message['id']}")
        _check_usage(message["usage"])
        self.streamed.message = dict(message, content=[])

    def _content_block_start(self, event: dict[str, Any]) -> None:
        _keys(event, {"type", "index", "content_block"})
        content = self._message(event)["content"]
        _require(self._block is None, "content_block_start inside a block")
        _require(event["index"] == len(content), f"block {event['index']} comes as number {len(content)}")
        block = dict(event["content_block"])
        _require(block.get("type") in EMPTY_BLOCKS, f"a block of type {block.get('type')}")
        own = {"id", "name"} if block["type"] == "tool_use" else set()
        _keys(block, {*EMPTY_BLOCKS[block["type"]], *own})
        _require(EMPTY_BLOCKS[block["type"]].items() <= block.items(), f"a block begins filled: {block}")
        _require(not own or block["id"].startswith("toolu_"), f"a call's id is {block.get('id')}")
        content.append(block)
        self._block, self._input = block, ""

    def _content_block_delta(self, event: dict[str, Any]) -> None:
        _keys(event, {"type", "index", "delta"})
        block = self._open_block(event)
        delta = event["delta"]
        _require(delta.get("type") in DELTAS, f"a delta of type {delta.get('type')}")
        kind, name = DELTAS[delta["type"]]
        _keys(delta, {"type", name})
        _require(kind == block["type"], f"a {delta['type']} in a block of type {block['type']}")
        _require(not block.get("signature"), f"a {delta['type']} after the signature")
        if name == "partial_json":
            self._input += delta[name]
        else:
            block[name] += delta[name]
        if name != "signature":
            self.streamed.deltas.append(delta[name])

    def _content_block_stop(self, event: dict[str, Any]) -> None:
        _keys(event, {"type", "index"})
        block = self._open_block(event)
        if block["type"] == "tool_use":
            block["input"] = json.loads(self._input or "{}")
            _require(isinstance(block["input"], dict), f"the input is no object: {self._input}")
        _require(bool(block.get("signature", "x")), "a thinking block without a signature")
        self._block = None

    def _message_delta(self, event: dict[str, Any]) -> None:
        _keys(event, {"type", "delta", "usage"})
        message = self._message(event)
        _require(self._block is None, "message_delta inside a block")
        delta = event["delta"]
        _keys(delta, {"stop_reason", "stop_sequence"})
        _require(delta["stop_reason"] in STOP_REASONS, f"stop_reason is {delta['stop_reason']}")
        _require(
            (delta["stop_sequence"] is not None) == (delta["stop_reason"] == "stop_sequence"),
            f"stop_sequence does not fit: {delta}",
        )
        called = any(block["type"] == "tool_use" for block in message["content"])
        _require(called == (delta["stop_reason"] == "tool_use"), f"{delta} with calls: {called}")
        _check_usage(event["usage"])
        for name in USAGE - {"output_tokens"}:
            _require(event["usage"][name] == message["usage"][name], f"{name} has changed")
        message.update(delta, usage=event["usage"])
        self._delta_seen = True

    def _message_stop(self, event: dict[str, Any]) -> None:
        _keys(event, {"type"})
        self._message(event, after_delta=True)
        self.ended = True

    def _message(self, event: dict[str, Any], after_delta: bool = False) -> dict[str, Any]:
        message = self.streamed.message
        _require(message is not None, f"{event['type']} before message_start")
        order = "before" if after_delta else "after"
        _require(self._delta_seen == after_delta, f"{event['type']} {order} message_delta")
        assert message is not None
        return message

    def _open_block(self, event: dict[str, Any]) -> dict[str, Any]:
        content = self._message(event)["content"]
        _require(self._block is not None, f"{event['type']} outside of a block")
        _require(event["index"] == len(content) - 1, f"{event['type']} has index {event['index']}")
        assert self._block is not None
        return self._block


def _check_usage(usage: dict[str, Any]) -> None:
    _keys(usage, USAGE)
    _require(all(type(n) is int and n >= 0 for n in usage.values()), f"usage is {usage}")


def _keys(value: dict[str, Any], keys: set[str]) -> None:
    _require(set(value) == keys, f"{value} has not exactly the fields {sorted(keys)}")


def _require(true: bool, message: str) -> None:
    if not true:
        raise BrokenStreamError(message)
