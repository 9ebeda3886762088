"""The grammar of a streamed chat completion: raises AssertionError at the first break of it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

DONE = "[DONE]"


@dataclass
class Folded:
    """A stream folded into what a whole answer would have said."""

    content: str = ""
    reasoning: str = ""
    calls: list[dict[str, Any]] = field(default_factory=list)
    finish_reason: str | None = None
    usage: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    comments: int = 0


def read_chat_stream(raw: str, *, include_usage: bool = False) -> Folded:
    """Check every line of a stream and fold it.

    One id and one head on all chunks; the role first and once; call indices 0, 1, 2 without gaps; exactly one
    finish reason, after all content; usage only as the last chunk and only when asked for; one end.
    """
    folded = Folded()
    chunks: list[dict[str, Any]] = []
    events = raw.split("\n\n")
    assert events.pop() == "", "the stream ends in the middle of an event"
    assert events, "an empty stream"
    for place, event in enumerate(events):
        if event.startswith(":"):
            folded.comments += 1
            continue
        assert event.startswith("data: "), event
        assert "\n" not in event, event
        payload = event.removeprefix("data: ")
        if payload == DONE:
            assert place == len(events) - 1, "something comes after [DONE]"
            break
        assert folded.error is None, "something comes after the error"
        chunk = json.loads(payload)
        if "error" in chunk:
            folded.error = chunk["error"]
        else:
            chunks.append(chunk)
    else:
        raise AssertionError("no [DONE]")
    _check_heads(chunks, folded)
    for chunk in chunks:
        _take(chunk, folded, include_usage)
    if folded.error is None:
        assert folded.finish_reason is not None, "no finish reason"
        assert (folded.finish_reason == "tool_calls") == bool(folded.calls)
        assert (folded.usage is not None) == include_usage
        for call in folded.calls:
            assert isinstance(json.loads(call["arguments"]), dict)
        ids = [call["id"] for call in folded.calls]
        assert len(set(ids)) == len(ids), ids
    return folded


def _check_heads(chunks: list[dict[str, Any]], folded: Folded) -> None:
    heads = {(chunk["id"], chunk["object"], chunk["created"], chunk["model"]) for chunk in chunks}
    assert len(heads) == 1, heads
    (head,) = heads
    assert head[0].startswith("chatcmpl-")
    assert head[1] == "chat.completion.chunk"
    if folded.error is not None:
        assert folded.error["request_id"] == head[0]
    roles = [c["delta"]["role"] for chunk in chunks for c in chunk["choices"] if "role" in c["delta"]]
    assert roles == ["assistant"]
    assert "role" in chunks[0]["choices"][0]["delta"], "the role is not first"


def _take(chunk: dict[str, Any], folded: Folded, include_usage: bool) -> None:
    assert folded.usage is None, "something comes after the usage"
    assert ("usage" in chunk) == include_usage
    if not chunk["choices"]:
        assert folded.finish_reason is not None, "usage before the finish reason"
        folded.usage = chunk["usage"]
        assert "timings" in chunk
        return
    (choice,) = chunk["choices"]
    assert choice["index"] == 0
    assert folded.finish_reason is None, "a choice after the finish reason"
    delta = choice["delta"]
    folded.content += delta.get("content") or ""
    folded.reasoning += delta.get("reasoning_content") or ""
    for call in delta.get("tool_calls", ()):
        _take_call(call, folded)
    if choice["finish_reason"] is not None:
        folded.finish_reason = choice["finish_reason"]
        assert "timings" in chunk


def _take_call(call: dict[str, Any], folded: Folded) -> None:
    if call["index"] == len(folded.calls):
        assert call["type"] == "function"
        assert call["id"].startswith("call_")
        folded.calls.append({"id": call["id"], "name": call["function"]["name"], "arguments": ""})
    assert call["index"] == len(folded.calls) - 1, "an index out of turn"
    folded.calls[-1]["arguments"] += call["function"]["arguments"]
