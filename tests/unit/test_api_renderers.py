"""Chat events as the bytes OpenAI clients read."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from openai.types import Completion
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from mashbox.api import openai_chat, openai_completions
from mashbox.api.openai_answer import AnswerHead, chat_timings
from mashbox.chat.types import ChatEvent, Done, Text, WholeAnswer
from mashbox.engine.types import FinishReason, Usage
from mashbox.errors import EngineError
from mashbox.http.sse import Renderer

HEAD = AnswerHead("chatcmpl-1", 1700000000, 'org/"model"')
USAGE = Usage(
    prompt_tokens=10, cached_tokens=4, completion_tokens=3, queue_ms=1.0, prompt_ms=20.0, predicted_ms=40.0
)
TEXTS = ["Hel", 'l"o\n', "", "wörld \u2028 \U0001f600 \x00"]
TIMINGS = {
    "prompt_n": 6,
    "prompt_ms": 20.0,
    "prompt_per_second": 300.0,
    "predicted_n": 3,
    "predicted_ms": 40.0,
    "predicted_per_second": 50.0,
    "cache_n": 4,
    "queue_ms": 1.0,
}
COUNTS = {"prompt_tokens": 10, "completion_tokens": 3, "total_tokens": 13}
CHAT_COUNTS = COUNTS | {"prompt_tokens_details": {"cached_tokens": 4}}


def events(reason: FinishReason = FinishReason.STOP) -> list[ChatEvent]:
    return [*map(Text, TEXTS), Done(reason, USAGE)]


def stream(renderer: Renderer[ChatEvent], answer: list[ChatEvent]) -> bytes:
    return renderer.start() + b"".join(map(renderer.event, answer))


def payloads(sent: bytes) -> list[dict[str, Any]]:
    """The JSON of every event; the last must be [DONE]."""
    lines = sent.split(b"\n\n")
    assert lines.pop() == b""
    assert lines.pop() == b"data: [DONE]"
    assert all(line.startswith(b"data: ") and b"\n" not in line for line in lines)
    return [json.loads(line[6:]) for line in lines]


def test_chat_stream() -> None:
    chunks = payloads(stream(openai_chat.ChatStream(HEAD, include_usage=False), events()))
    fixed = {"id": HEAD.id, "object": "chat.completion.chunk", "created": HEAD.created, "model": HEAD.model}
    deltas = [{"role": "assistant", "content": ""}, *({"content": text} for text in TEXTS)]
    plain = [
        fixed | {"choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}]}
        for delta in deltas
    ]
    last = {"index": 0, "delta": {}, "logprobs": None, "finish_reason": "stop"}
    assert chunks == [*plain, fixed | {"choices": [last], "timings": TIMINGS}]
    for chunk in chunks:
        ChatCompletionChunk.model_validate(chunk, strict=True)


def test_chat_stream_with_usage() -> None:
    chunks = payloads(stream(openai_chat.ChatStream(HEAD, include_usage=True), events(FinishReason.LENGTH)))
    assert [chunk["usage"] for chunk in chunks] == [None] * 6 + [CHAT_COUNTS]
    assert chunks[-2]["choices"][0]["finish_reason"] == "length"
    assert chunks[-1]["choices"] == []
    assert chunks[-2]["timings"] == chunks[-1]["timings"] == TIMINGS
    assert "".join(c["choices"][0]["delta"].get("content", "") for c in chunks[:-1]) == "".join(TEXTS)
    for chunk in chunks:
        ChatCompletionChunk.model_validate(chunk, strict=True)


def test_chat_whole() -> None:
    whole = WholeAnswer((Text("hello"),), Done(FinishReason.STOP_STRING, USAGE, "x"))
    body = as_json(openai_chat.render_response(HEAD, whole))
    ChatCompletion.model_validate(body, strict=True)
    assert body["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "hello", "refusal": None},
            "logprobs": None,
            "finish_reason": "stop",
        }
    ]
    assert (body["usage"], body["timings"], body["object"]) == (CHAT_COUNTS, TIMINGS, "chat.completion")


def as_json(value: Any) -> Any:
    return json.loads(msgspec.json.encode(value))


def test_completion_stream() -> None:
    chunks = payloads(stream(openai_completions.CompletionStream(HEAD, 7), events(FinishReason.LENGTH)))
    assert [chunk["choices"][0]["text"] for chunk in chunks] == [*TEXTS, ""]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None] * 4 + ["length"]
    for chunk in chunks:
        assert (chunk["system_fingerprint"], chunk["object"]) == ("seed-7", "text_completion")
        assert "usage" not in chunk


def test_completion_whole() -> None:
    whole = WholeAnswer((Text("hello"),), Done(FinishReason.STOP, USAGE))
    body = as_json(openai_completions.render_response(HEAD, 7, whole))
    Completion.model_validate(body, strict=True)
    assert body == {
        "id": HEAD.id,
        "object": "text_completion",
        "created": HEAD.created,
        "model": HEAD.model,
        "system_fingerprint": "seed-7",
        "choices": [{"text": "hello", "index": 0, "logprobs": None, "finish_reason": "stop"}],
        "usage": CHAT_COUNTS,
    }


@pytest.mark.parametrize(
    "renderer", [openai_chat.ChatStream(HEAD, True), openai_completions.CompletionStream(HEAD, 7)]
)
def test_a_stream_that_fails(renderer: Renderer[ChatEvent]) -> None:
    (told,) = payloads(renderer.failed(EngineError("The worker died.")))
    assert told == {
        "error": {
            "message": "The worker died.",
            "type": "server_error",
            "param": None,
            "code": "engine_error",
            "request_id": HEAD.id,
        }
    }
    assert renderer.keep_alive().startswith(b":")


@pytest.mark.parametrize("completion_tokens", [0, 1])
def test_speeds_without_time_are_null(completion_tokens: int) -> None:
    timings = chat_timings(Usage(5, 5, completion_tokens, 0.0, 0.0, 0.0))
    assert (timings.prompt_per_second, timings.predicted_per_second, timings.prompt_n) == (None, None, 0)
    assert chat_timings(Usage(5, 0, completion_tokens, 0.0, 1.0, 1.0)).predicted_per_second == 0.0
