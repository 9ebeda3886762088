"""The Responses route on a real port: as raw events, and as the official client sees it."""

from __future__ import annotations

import socket
from typing import Any

import httpx2 as httpx
import openai
import pytest

from tests.api.conftest import Server
from tests.wire.responses_events import CheckedStream, check_stream

PATH = "/v1/responses"
TOOLS: Any = [
    {"type": "function", "name": "look", "parameters": {"type": "object"}, "strict": False},
    {"type": "custom", "name": "patch"},
    {"type": "namespace", "name": "n", "description": "d", "tools": [{"type": "function", "name": "x"}]},
    {"type": "web_search"},
]


def ask(server: Server, **fields: Any) -> httpx.Response:
    return server.http.post(PATH, json=fields)


def streamed(server: Server, **fields: Any) -> CheckedStream:
    """The stream's events, checked."""
    answer = ask(server, stream=True, **fields)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/event-stream")
    return check_stream(answer.content)


def text_of(response: dict[str, Any]) -> str:
    (item,) = response["output"]
    text: str = item["content"][0]["text"]
    return text


def told(answer: httpx.Response) -> dict[str, Any]:
    error: dict[str, Any] = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return error


def test_whole(server: Server, model: str) -> None:
    answer = server.openai.responses.create(
        model=model, instructions="x", input="grüße, 🙂", tools=TOOLS, metadata={"a": "b"}
    )
    assert answer.output_text == "grüße, 🙂"
    assert (answer.status, answer.error, answer.incomplete_details) == ("completed", None, None)
    assert answer.model == model
    assert answer.id.startswith("resp_")
    assert [tool.type for tool in answer.tools] == ["function", "custom", "namespace", "web_search"]
    assert answer.metadata == {"a": "b"}
    assert answer.usage is not None
    assert answer.usage.output_tokens == len("grüße, 🙂".encode()) + 1
    assert answer.usage.total_tokens == answer.usage.input_tokens + answer.usage.output_tokens
    plain = server.openai.responses.create(model=model, instructions="x", input="grüße, 🙂")
    assert plain.usage is not None
    # A model whose template knows no tools is told about them in words.
    assert (
        plain.usage.input_tokens == len("system> x\nuser> grüße, 🙂\n".encode()) < answer.usage.input_tokens
    )


def test_items(server: Server, model: str) -> None:
    answer = server.openai.responses.create(
        model=model,
        input=[
            {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "d"}]},
            {"role": "user", "content": "u"},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "last"}]},
        ],
    )
    assert answer.output_text == "last"
    assert answer.usage is not None
    assert answer.usage.input_tokens == len("system> d\nuser> u\nuser> last\n")


def test_an_answer_can_be_sent_back(server: Server, model: str) -> None:
    first = server.openai.responses.create(model=model, input="one")
    history: Any = [{"role": "user", "content": "one"}, *first.output, {"role": "user", "content": "two"}]
    answer = server.openai.responses.create(model=model, input=history)
    assert answer.output_text == "two"
    assert answer.usage is not None
    assert answer.usage.input_tokens == len("user> one\nassistant> one\nuser> two\n")


def test_the_official_stream(server: Server, model: str) -> None:
    events = list(server.openai.responses.create(model=model, input="one [pause]two 🙂", stream=True))
    assert [event.sequence_number for event in events] == list(range(1, len(events) + 1))
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(deltas) == "one two 🙂"
    assert len(deltas) > 1
    last = events[-1]
    assert last.type == "response.completed"
    assert last.response.output_text == "one two 🙂"
    assert last.response.usage is not None


def test_the_official_stream_helper(server: Server, model: str) -> None:
    with server.openai.responses.stream(model=model, input="hello there", tools=TOOLS[:1]) as stream:
        final = stream.get_final_response()
    assert final.output_text == "hello there"
    assert final.usage is not None


def test_streams_follow_the_grammar(server: Server, model: str) -> None:
    stream = streamed(server, model=model, input="a [pause]b", tools=TOOLS, instructions="i")
    assert text_of(stream.response) == "a b"
    assert stream.response["instructions"] == "i"
    assert stream.response["tools"] == TOOLS
    assert stream.response["tool_choice"] == "auto"
    assert stream.response["parallel_tool_calls"] is False


@pytest.mark.parametrize(
    ("fields", "text", "status"),
    [
        ({"max_output_tokens": 4}, "hell", "incomplete"),
        ({"max_tokens": 4, "max_output_tokens": 3}, "hel", "incomplete"),
        ({"stop": " w"}, "hello", "completed"),
        ({"stop_sequences": ["ld"]}, "hello wor", "completed"),
    ],
)
def test_limits(server: Server, fields: dict[str, Any], text: str, status: str) -> None:
    whole = ask(server, input="hello world", **fields).json()
    stream = streamed(server, input="hello world", **fields).response
    for response in (whole, stream):
        assert (text_of(response), response["status"]) == (text, status)
    ids = {"id", "created_at", "output", "usage"}
    assert {k: v for k, v in whole.items() if k not in ids} == {
        k: v for k, v in stream.items() if k not in ids
    }


def test_an_empty_answer_has_an_empty_message(server: Server) -> None:
    assert text_of(ask(server, input="").json()) == ""
    assert text_of(streamed(server, input="").response) == ""


def test_a_quiet_stream_says_that_it_is_in_progress(server: Server) -> None:
    stream = streamed(server, input="a" + "[pause]" * 20 + "b")
    assert stream.keep_alives >= 1
    assert text_of(stream.response) == "ab"


@pytest.mark.parametrize("mark", ["[fail]", "[die]"])
def test_a_stream_that_fails(server: Server, mark: str) -> None:
    stream = streamed(server, input=f"abc[pause]{mark}")
    assert stream.error is not None
    assert stream.error["code"] == "engine_error"
    assert stream.response["error"]["code"] == "server_error"
    assert "response.output_text.delta" in stream.types
    server.until(lambda report: report["status"] == "ok", 20)


def test_a_whole_answer_that_fails(server: Server, model: str) -> None:
    with pytest.raises(openai.InternalServerError) as caught:
        server.openai.responses.create(model=model, input="abc[fail]")
    assert (caught.value.code, caught.value.type) == ("engine_error", "server_error")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("fields", "status", "code", "param"),
    [
        ({"model": "other", "input": "x"}, 404, "model_not_found", "model"),
        ({"input": "x" * 9000}, 400, "context_length_exceeded", "input"),
        ({"input": [{"role": "robot", "content": "x"}]}, 400, None, "input[0].role"),
        ({"input": "x", "previous_response_id": "resp_1"}, 400, None, "previous_response_id"),
        ({}, 400, None, "input"),
    ],
)
def test_refusals(
    server: Server, fields: dict[str, Any], status: int, code: str | None, param: str, stream: bool
) -> None:
    answer = ask(server, stream=stream, **fields)
    error = told(answer)
    assert (answer.status_code, error["code"], error["param"]) == (status, code, param)
    assert error["type"] == "invalid_request_error"


def test_other_content_types_are_refused(server: Server) -> None:
    answer = server.http.post(PATH, content=b"{}", headers={"Content-Type": "text/plain"})
    assert answer.status_code == 415


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_other_methods_are_not_allowed(server: Server, method: str) -> None:
    answer = server.http.request(method, PATH)
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    assert told(answer)["type"] == "invalid_request_error"


def test_an_upgrade_is_refused_at_once(server: Server) -> None:
    """As a WebSocket client asks; the connection is closed after the answer."""
    request = (
        f"GET {PATH} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nConnection: Upgrade\r\n"
        "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", server.port), 5) as connection:
        connection.sendall(request.encode())
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    head, _, body = answer.partition(b"\r\n\r\n")
    lines = head.decode().lower().split("\r\n")
    assert lines[0] == "http/1.1 426 upgrade required"
    assert "upgrade: http/1.1" in lines
    assert "connection: upgrade" in lines
    assert b"WebSocket" in body
    assert httpx.Response(426, content=body).json()["error"]["type"] == "invalid_request_error"


def test_an_upgrade_to_anything_else_is_a_wrong_method(server: Server) -> None:
    answer = server.http.get(PATH, headers={"Upgrade": "h2c", "Connection": "Upgrade"})
    assert answer.status_code == 405
