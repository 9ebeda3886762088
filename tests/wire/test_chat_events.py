"""The checker of chat streams finds what is wrong with them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.wire.chat_events import read_chat_stream

HEAD = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
DONE = "data: [DONE]\n\n"


def chunk(delta: dict[str, Any], finish_reason: str | None = None, **more: Any) -> str:
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    return f"data: {json.dumps(HEAD | {'choices': [choice]} | more)}\n\n"


def call(index: int, name: str = "f", arguments: str = "{}") -> str:
    function = {"name": name, "arguments": arguments}
    return chunk(
        {"tool_calls": [{"index": index, "id": f"call_{index}", "type": "function", "function": function}]}
    )


ROLE = chunk({"role": "assistant", "content": ""})
TEXT = chunk({"content": "x"})
STOP = chunk({}, "stop", timings={})
CALLED = chunk({}, "tool_calls", timings={})


def test_good_streams_pass() -> None:
    assert read_chat_stream(ROLE + TEXT + TEXT + STOP + DONE).content == "xx"
    assert len(read_chat_stream(": hi\n\n" + ROLE + call(0) + call(1) + CALLED + DONE).calls) == 2


@pytest.mark.parametrize(
    "raw",
    [
        ROLE + TEXT + STOP,
        ROLE + TEXT + DONE,
        ROLE + STOP + STOP + DONE,
        ROLE + STOP + TEXT + DONE,
        ROLE + STOP + DONE + DONE,
        TEXT + ROLE + STOP + DONE,
        TEXT + STOP + DONE,
        ROLE + ROLE + STOP + DONE,
        ROLE + call(1) + CALLED + DONE,
        ROLE + call(0) + STOP + DONE,
        ROLE + CALLED + DONE,
        ROLE + call(0, arguments="{") + CALLED + DONE,
        ROLE + TEXT + STOP + DONE[:-1],
        ROLE + TEXT + chunk({}, "stop") + DONE,
        ROLE + TEXT.replace("chatcmpl-1", "chatcmpl-2") + STOP + DONE,
        DONE,
    ],
)
def test_each_break_is_found(raw: str) -> None:
    with pytest.raises((AssertionError, ValueError)):
        read_chat_stream(raw)
