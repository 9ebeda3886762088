"""The generating routes: what is asked there, and how an answer may end."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from tests.faults.wire import Reply
from tests.wire.anthropic_events import check_stream as check_message
from tests.wire.chat_events import read_chat_stream
from tests.wire.responses_events import check_stream as check_response

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
MESSAGES, RESPONSES = "/v1/messages", "/v1/responses"
COUNT = "/v1/messages/count_tokens"
ROUTES = (CHAT, COMPLETIONS, MESSAGES, RESPONSES)
OUTPUT = {
    CHAT: rb'"content":"[^"]',
    COMPLETIONS: rb'"text":"[^"]',
    MESSAGES: rb"content_block_delta",
    RESPONSES: rb"output_text\.delta",
}
"""What a stream has in it once it has sent output."""


def body(route: str, text: str, stream: bool = False, max_tokens: int = 64) -> dict[str, Any]:
    """A greedy request."""
    common: dict[str, Any] = {"temperature": 0, "stream": stream}
    match route:
        case "/v1/completions":
            return common | {"prompt": text, "max_tokens": max_tokens}
        case "/v1/responses":
            return common | {"input": text, "max_output_tokens": max_tokens}
        case "/v1/messages/count_tokens":
            return {"messages": [{"role": "user", "content": text}]}
        case _:
            return common | {"messages": [{"role": "user", "content": text}], "max_tokens": max_tokens}


@dataclass(frozen=True)
class Ending:
    """How a request ended. `how` is answered, event (an error after the 200) or status."""

    how: str
    status: int = 200
    text: str = ""


def has_output(route: str, reply: Reply) -> bool:
    """Whether a stream has sent any."""
    return re.search(OUTPUT[route], reply.raw) is not None


def ending(route: str, stream: bool, reply: Reply) -> Ending:
    """How it ended. Raises AssertionError for everything that is not one of the ways of its route."""
    assert reply.status, "the connection was closed without an answer"
    if reply.status != 200:
        check_error(route, reply)
        return Ending("status", reply.status)
    if stream:
        return _stream_ending(route, reply.body)
    return Ending("answered", text=_whole_text(route, reply.json()))


def check_error(route: str, reply: Reply) -> None:
    """An error body in the route's shape, with what its status needs beside it."""
    error = reply.json()
    if route.startswith(MESSAGES):
        assert (error["type"], set(error["error"])) == ("error", {"type", "message"}), error
        assert error["request_id"] == reply.headers["request-id"]
    else:
        assert set(error["error"]) == {"message", "type", "param", "code"}, error
    if reply.status in (429, 503, 529):
        assert 1 <= int(reply.headers["retry-after"]) <= 60


def _whole_text(route: str, answer: dict[str, Any]) -> str:
    match route:
        case "/v1/chat/completions":
            assert answer["choices"][0]["finish_reason"] in ("stop", "length")
            return str(answer["choices"][0]["message"]["content"])
        case "/v1/completions":
            assert answer["choices"][0]["finish_reason"] in ("stop", "length")
            return str(answer["choices"][0]["text"])
        case "/v1/messages":
            assert answer["stop_reason"] in ("end_turn", "max_tokens")
            return "".join(block["text"] for block in answer["content"])
        case "/v1/messages/count_tokens":
            return str(answer["input_tokens"])
        case _:
            assert answer["status"] in ("completed", "incomplete")
            return "".join(part["text"] for item in answer["output"] for part in item["content"])


def _stream_ending(route: str, sent: bytes) -> Ending:
    match route:
        case "/v1/chat/completions":
            chat = read_chat_stream(sent.decode())
            return Ending("event" if chat.error else "answered", text=chat.content)
        case "/v1/completions":
            return _completion_ending(sent.decode())
        case "/v1/messages":
            message = check_message(sent)
            text = "".join(message.deltas)
            if message.error is None:
                return Ending("answered", text=text)
            if message.message is not None:
                assert message.error["request_id"] == message.message["id"]
            return Ending("event", text=text)
        case _:
            response = check_response(sent)
            kinds = [event for event in response.events if event["type"] == "response.output_text.delta"]
            how = "event" if response.error else "answered"
            return Ending(how, text="".join(event["delta"] for event in kinds))


def _completion_ending(raw: str) -> Ending:
    events = [event for event in raw.removesuffix("\n\n").split("\n\n") if not event.startswith(":")]
    assert raw.endswith("\n\n")
    assert all(event.startswith("data: ") for event in events), raw
    *data, end = [event.removeprefix("data: ") for event in events]
    assert end == "[DONE]"
    assert "[DONE]" not in data
    chunks = [json.loads(event) for event in data]
    failed = [chunk for chunk in chunks if "error" in chunk]
    assert failed in ([], chunks[-1:])
    told = [chunk for chunk in chunks if "error" not in chunk]
    ids = {chunk["id"] for chunk in told} | {chunk["error"]["request_id"] for chunk in failed}
    assert len(ids) == 1
    reasons = [chunk["choices"][0]["finish_reason"] for chunk in told]
    text = "".join(chunk["choices"][0]["text"] for chunk in told)
    if failed:
        assert not any(reasons)
        return Ending("event", text=text)
    assert [reason for reason in reasons if reason] in (["stop"], ["length"])
    return Ending("answered", text=text)
