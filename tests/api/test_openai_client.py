"""The two OpenAI routes as the official client sees them."""

from __future__ import annotations

from functools import partial
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletionChunk

from tests.api.conftest import Server


def test_chat(server: Server, model: str) -> None:
    answer = server.openai.chat.completions.create(
        model=model, messages=[{"role": "system", "content": "x"}, {"role": "user", "content": "grüße, 🙂"}]
    )
    assert answer.choices[0].message.content == "grüße, 🙂"
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.model == model
    assert answer.id.startswith("chatcmpl-")
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == len("system> x\nuser> grüße, 🙂\n".encode())
    assert answer.usage.completion_tokens == len("grüße, 🙂".encode()) + 1
    timings = answer.model_extra["timings"] if answer.model_extra else {}
    assert timings["predicted_n"] == answer.usage.completion_tokens
    assert timings["prompt_n"] + timings["cache_n"] == answer.usage.prompt_tokens


def test_chat_stream(server: Server, model: str) -> None:
    stream = server.openai.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": "one [pause]two 🙂"}],
        stream=True,
        stream_options={"include_usage": True},
    )
    *chunks, finish, usage = list(stream)
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "one two 🙂"
    assert {chunk.choices[0].finish_reason for chunk in chunks} == {None}
    assert finish.choices[0].finish_reason == "stop"
    assert usage.choices == []
    assert usage.usage is not None
    assert usage.usage.total_tokens == usage.usage.prompt_tokens + usage.usage.completion_tokens
    assert len({(chunk.id, chunk.created) for chunk in [*chunks, finish, usage]}) == 1
    for chunk in (finish, usage):
        assert (chunk.model_extra or {})["timings"]["predicted_ms"] >= 50


def test_chat_stream_helper(server: Server, model: str) -> None:
    with server.openai.chat.completions.stream(
        model=model, messages=[{"role": "user", "content": "hello there"}]
    ) as stream:
        assert stream.get_final_completion().choices[0].message.content == "hello there"


def test_completion(server: Server, model: str) -> None:
    answer = server.openai.completions.create(model=model, prompt="a\nhello", seed=11)
    assert (answer.choices[0].text, answer.choices[0].finish_reason) == ("hello", "stop")
    assert answer.system_fingerprint == "seed-11"
    assert answer.id.startswith("cmpl-")
    assert answer.usage is not None
    assert answer.usage.total_tokens == 7 + 6


def test_completion_stream(server: Server, model: str) -> None:
    chunks = list(server.openai.completions.create(model=model, prompt="hello", seed=-1, stream=True))
    assert "".join(chunk.choices[0].text for chunk in chunks) == "hello"
    assert [chunk.choices[0].finish_reason for chunk in chunks] == [None] * (len(chunks) - 1) + ["stop"]
    assert {chunk.system_fingerprint for chunk in chunks} == {f"seed-{2**64 - 1}"}
    assert all(chunk.usage is None for chunk in chunks)


@pytest.mark.parametrize("stream", [False, True])
def test_limits(server: Server, model: str, stream: bool) -> None:
    def ask(content: str, **options: Any) -> tuple[str | None, str | None]:
        messages: Any = [{"role": "user", "content": content}]
        create: Any = partial(
            server.openai.chat.completions.create, model=model, messages=messages, **options
        )
        if not stream:
            choice = create(stream=False).choices[0]
            return choice.message.content, choice.finish_reason
        chunks = list(create(stream=True))
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
        return text, chunks[-1].choices[0].finish_reason

    assert ask("hello world", max_tokens=4) == ("hell", "length")
    assert ask("hello world", max_completion_tokens=3, max_tokens=4) == ("hel", "length")
    assert ask("hello world", stop=" w") == ("hello", "stop")
    assert ask("hello world", stop=["x", "ld"]) == ("hello wor", "stop")
    assert ask("hello<turn>world") == ("hello", "stop")


def test_refusals(server: Server, model: str) -> None:
    def ask(**options: object) -> openai.APIStatusError:
        fields = {"model": model, "messages": [{"role": "user", "content": "x"}]} | options
        with pytest.raises(openai.APIStatusError) as caught:
            server.openai.chat.completions.create(**fields)  # type: ignore[call-overload]
        return caught.value

    assert isinstance(ask(model="other"), openai.NotFoundError)
    assert ask(model="other").code == "model_not_found"
    refused = ask(messages=[{"role": "robot", "content": "x"}])
    assert isinstance(refused, openai.BadRequestError)
    assert (refused.param, refused.type) == ("messages[0].role", "invalid_request_error")
    for stream in (False, True):
        refused = ask(messages=[{"role": "user", "content": "x" * 9000}], stream=stream)
        assert (refused.code, refused.param) == ("context_length_exceeded", "messages")


def test_a_worker_that_dies_in_a_stream(server: Server, model: str) -> None:
    stream = server.openai.chat.completions.create(
        model=model, messages=[{"role": "user", "content": "abc[pause][die]"}], stream=True
    )
    chunks: list[ChatCompletionChunk] = []
    with pytest.raises(openai.APIError) as caught:
        chunks.extend(stream)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "abc"
    report = server.until(lambda report: report["status"] == "ok", 20)
    assert isinstance(caught.value.body, dict)
    assert caught.value.body["request_id"].startswith("chatcmpl-")
    assert caught.value.code == "engine_error"
    assert report["worker_restarts"] >= 1
    assert server.chat("still here").json()["choices"][0]["message"]["content"] == "still here"


def test_a_failure_in_a_whole_answer(server: Server, model: str) -> None:
    with pytest.raises(openai.InternalServerError) as caught:
        server.openai.completions.create(model=model, prompt="abc[fail]")
    assert (caught.value.code, caught.value.type) == ("engine_error", "server_error")
