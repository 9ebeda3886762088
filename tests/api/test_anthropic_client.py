"""The two Messages routes as the official client sees them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anthropic
import pytest
from anthropic.types import Message, MessageParam

from tests.api.conftest import Server
from tests.api.serve import CONTEXT, MODEL_ID


def user(content: str) -> list[MessageParam]:
    return [{"role": "user", "content": content}]


def prompt_tokens(message: Message) -> int:
    usage = message.usage
    assert usage.cache_creation_input_tokens == 0
    return usage.input_tokens + (usage.cache_read_input_tokens or 0)


def text(message: Message) -> str:
    return "".join(block.text for block in message.content if block.type == "text")


def test_whole(server: Server) -> None:
    answer = server.anthropic.messages.create(
        model="claude-any-1",
        max_tokens=128_000,
        system="x",
        messages=user("grüße, 🙂"),
        timeout=20,
    )
    assert [block.type for block in answer.content] == ["text"]
    assert text(answer) == "grüße, 🙂"
    assert (answer.type, answer.role, answer.model) == ("message", "assistant", "claude-any-1")
    assert (answer.stop_reason, answer.stop_sequence) == ("end_turn", None)
    assert answer.id.startswith("msg_")
    assert prompt_tokens(answer) == len("system> x\nuser> grüße, 🙂\n".encode())
    assert answer.usage.output_tokens == len("grüße, 🙂".encode()) + 1


def test_streamed(server: Server, model: str) -> None:
    with server.anthropic.messages.stream(
        model=model, max_tokens=100, messages=user("one [pause]two 🙂")
    ) as stream:
        events = list(stream)
        final = stream.get_final_message()
    texts = [event.text for event in events if event.type == "text"]
    assert "".join(texts) == text(final) == "one two 🙂"
    assert len(texts) > 5
    assert (final.stop_reason, final.model) == ("end_turn", model)
    assert final.usage.output_tokens == len("one two 🙂".encode()) + 2
    assert prompt_tokens(final) == len("user> one [pause]two 🙂\n".encode())


def test_streamed_without_the_helper(server: Server, model: str) -> None:
    stream = server.anthropic.messages.create(model=model, max_tokens=9, messages=user("hi"), stream=True)
    kinds = [event.type for event in stream]
    assert kinds[:2] == ["message_start", "content_block_start"]
    assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]


def test_the_beta_client(server: Server, model: str) -> None:
    answer = server.anthropic.beta.messages.create(
        model=model,
        max_tokens=31_999,
        messages=[{"role": "user", "content": "hi"}],
        betas=["interleaved-thinking-2025-05-14"],
        context_management={"edits": []},
        thinking={"type": "enabled", "budget_tokens": 31_000},
        stream=False,
        timeout=20,
    )
    assert [block.type for block in answer.content] == ["text"]


@pytest.mark.parametrize("stream", [False, True])
def test_limits(server: Server, model: str, stream: bool) -> None:
    def ask(content: str, **options: Any) -> tuple[str, str | None, str | None]:
        fields: dict[str, Any] = {"model": model, "max_tokens": 99, "messages": user(content)} | options
        if stream:
            with server.anthropic.messages.stream(**fields) as streamed:
                answer: Message = streamed.get_final_message()
        else:
            answer = server.anthropic.messages.create(**fields)
        return text(answer), answer.stop_reason, answer.stop_sequence

    assert ask("hello world", max_tokens=4) == ("hell", "max_tokens", None)
    assert ask("hello world", max_tokens=4, extra_body={"max_completion_tokens": 3})[0] == "hel"
    assert ask("hello world", stop_sequences=[" w"]) == ("hello", "stop_sequence", " w")
    assert ask("hello world", stop_sequences=["x", "ld"]) == ("hello wor", "stop_sequence", "ld")
    assert ask("hello<turn>world") == ("hello", "end_turn", None)
    assert ask("<turn>") == ("", "end_turn", None)


def test_an_answer_without_text_has_no_blocks(server: Server, model: str) -> None:
    answer = server.anthropic.messages.create(model=model, max_tokens=9, messages=user("<turn>"))
    assert answer.content == []


def test_a_second_turn_reads_the_first_from_the_cache(server: Server, model: str) -> None:
    messages = user("a" * 300 + "\nhi")
    first = server.anthropic.messages.create(model=model, max_tokens=999, messages=messages)
    again: list[MessageParam] = [
        *messages,
        {"role": "assistant", "content": first.content},
        {"role": "user", "content": [{"type": "text", "text": "b", "cache_control": {"type": "ephemeral"}}]},
    ]
    with server.anthropic.messages.stream(model=model, max_tokens=9, messages=again) as stream:
        start = next(event for event in stream if event.type == "message_start")
        final = stream.get_final_message()
    cached = start.message.usage.cache_read_input_tokens
    assert cached == final.usage.cache_read_input_tokens == 310
    assert prompt_tokens(final) == len("user> " + "a" * 300 + "\nhi\nassistant> hi\nuser> b\n")


def test_count_tokens(server: Server, model: str) -> None:
    fields: dict[str, Any] = {"model": model, "system": "be brief", "messages": user("grüße")}
    counted = server.anthropic.messages.count_tokens(**fields).input_tokens
    answer = server.anthropic.messages.create(max_tokens=1, **fields)
    assert counted == prompt_tokens(answer) == len("system> be brief\nuser> grüße\n".encode())
    long = server.anthropic.messages.count_tokens(model=model, messages=user("x" * 2 * CONTEXT))
    assert long.input_tokens == 2 * CONTEXT + len("user> \n")


def test_a_burst_of_counts(server: Server, model: str) -> None:
    def count(size: int) -> int:
        return server.anthropic.messages.count_tokens(model=model, messages=user("x" * size)).input_tokens

    with ThreadPoolExecutor(25) as pool:
        counts = list(pool.map(count, range(25)))
    assert counts == [size + len("user> \n") for size in range(25)]


def test_refusals(server: Server, model: str) -> None:
    def ask(**options: Any) -> anthropic.APIStatusError:
        fields: dict[str, Any] = {"model": model, "max_tokens": 9, "messages": user("x")} | options
        with pytest.raises(anthropic.APIStatusError) as caught:
            server.anthropic.messages.create(**fields)
        assert isinstance(caught.value.body, dict)
        assert caught.value.body["request_id"] == caught.value.request_id
        return caught.value

    refused = ask(messages=[{"role": "robot", "content": "x"}])
    assert isinstance(refused, anthropic.BadRequestError)
    assert refused.type == "invalid_request_error"
    assert "messages[0].role" in refused.message
    image = {"type": "image", "source": {"type": "url", "url": "http://127.0.0.1/x.png"}}
    assert "reads text only" in ask(messages=[{"role": "user", "content": [image]}]).message
    for stream in (False, True):
        size = CONTEXT - len("user> \n")
        refused = ask(messages=user("ü" + "x" * (size - 2)), stream=stream)
        assert isinstance(refused, anthropic.BadRequestError)
        assert f"prompt is too long: {CONTEXT} tokens > {CONTEXT - 1} maximum" in refused.message


def test_a_worker_that_dies_in_a_stream(server: Server, model: str) -> None:
    texts: list[str] = []
    with (
        server.anthropic.messages.stream(
            model=model, max_tokens=99, messages=user("abc[pause][die]")
        ) as stream,
        pytest.raises(anthropic.APIStatusError) as caught,
    ):
        texts.extend(stream.text_stream)
    assert "".join(texts) == "abc"
    assert caught.value.type == "api_error"
    assert isinstance(caught.value.body, dict)
    assert caught.value.body["request_id"].startswith("msg_")
    server.until(lambda report: report["status"] == "ok", 20)


def test_a_failure_in_a_whole_answer(server: Server, model: str) -> None:
    with pytest.raises(anthropic.InternalServerError) as caught:
        server.anthropic.messages.create(model=model, max_tokens=99, messages=user("abc[fail]"))
    assert caught.value.type == "api_error"


def test_the_model_may_be_left_out(server: Server) -> None:
    answer = server.http.post("/v1/messages", json={"messages": user("hi")}).json()
    assert (answer["model"], answer["content"][0]["text"]) == (MODEL_ID, "hi")
