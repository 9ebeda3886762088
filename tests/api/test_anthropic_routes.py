"""The Messages routes on the wire: framing, pings, error shapes, and who is turned away."""

from __future__ import annotations

import json
import socket
from typing import Any

import anthropic
import pytest

from tests.api.conftest import Server, run_server
from tests.api.serve import SLOTS
from tests.api.test_connections import LONG, request
from tests.wire.anthropic_events import Streamed, check_stream, read_events

MESSAGES = "/v1/messages"
COUNT = "/v1/messages/count_tokens"
JSON = {"Content-Type": "application/json"}


def body(text: str, **fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}]} | fields


def error(answer: Any) -> dict[str, Any]:
    """The error of an answer; all answers of these routes tell it in the same shape."""
    assert answer.headers["content-type"] == "application/json"
    told: dict[str, Any] = answer.json()
    assert set(told) == {"type", "error", "request_id"}
    assert set(told["error"]) == {"type", "message"}
    assert told["type"] == "error"
    return dict(told["error"])


def streamed(server: Server, text: str, **fields: Any) -> Streamed:
    answer = server.http.post(f"{MESSAGES}?beta=true", json=body(text, stream=True, **fields))
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    return check_stream(answer.content)


def test_framing(server: Server) -> None:
    said = streamed(server, "one two", thinking={"type": "adaptive"}, model="any")
    assert said.message is not None
    assert said.message["content"] == [{"type": "text", "text": "one two"}]
    assert (said.message["model"], said.message["stop_reason"]) == ("any", "end_turn")
    assert "".join(said.deltas) == "one two"
    said = streamed(server, "<turn>")
    assert said.message is not None
    assert said.message["content"] == []


def test_a_quiet_stream_gets_pings(server: Server) -> None:
    said = streamed(server, "[pause]" * 20)
    assert 2 <= said.pings <= 7


def test_a_waiting_stream_gets_pings(server: Server) -> None:
    """Also before message_start, which waits for a slot."""
    busy = []
    for _ in range(SLOTS):
        client = socket.create_connection(("127.0.0.1", server.port))
        client.sendall(request(MESSAGES, body(LONG, stream=True)))
        busy.append(client)
    server.until(lambda report: report["live_rows"] == SLOTS)
    sent = b""
    with server.http.stream("POST", MESSAGES, json=body("hi", stream=True)) as answer:
        for chunk in answer.iter_bytes():
            sent += chunk
            if sent.count(b"event: ping") == 2:
                for client in busy:
                    client.close()
    assert [event["type"] for event in read_events(sent)][:3] == ["ping", "ping", "message_start"]
    assert check_stream(sent).message is not None


@pytest.mark.parametrize("stream", [False, True])
def test_leaving_stops_the_answer(server: Server, stream: bool) -> None:
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.sendall(request(MESSAGES, body(LONG, stream=stream)))
        server.until(lambda report: report["live_rows"] == 1)
        if stream:
            assert b"200 OK" in client.recv(100)
    server.until(lambda report: report["live_rows"] == 0)


def test_a_failure_in_a_stream(server: Server) -> None:
    said = streamed(server, "abc[fail]")
    assert said.error is not None
    assert said.message is not None
    assert said.error["error"]["type"] == "api_error"
    assert said.error["request_id"] == said.message["id"]
    assert "".join(said.deltas) == "abc"


@pytest.mark.parametrize(
    ("method", "path", "status", "kind"),
    [
        ("GET", MESSAGES, 405, "invalid_request_error"),
        ("DELETE", COUNT, 405, "invalid_request_error"),
        ("POST", f"{MESSAGES}/", 404, "not_found_error"),
        ("POST", f"{MESSAGES}/batches", 404, "not_found_error"),
        ("GET", f"{MESSAGES}/batches/x?beta=true", 404, "not_found_error"),
    ],
)
def test_no_such_route(server: Server, method: str, path: str, status: int, kind: str) -> None:
    answer = server.http.request(method, path)
    assert (answer.status_code, error(answer)["type"]) == (status, kind)
    assert answer.headers.get("allow") == ("POST" if status == 405 else None)


@pytest.mark.parametrize("path", [MESSAGES, COUNT])
@pytest.mark.parametrize(
    ("headers", "content", "status", "kind"),
    [
        ({}, b"{}", 415, "invalid_request_error"),
        ({"Content-Type": "text/plain"}, b"{}", 415, "invalid_request_error"),
        (JSON, b"", 400, "invalid_request_error"),
        (JSON, b"{", 400, "invalid_request_error"),
        (JSON, b"{}", 400, "invalid_request_error"),
        (JSON, b'{"x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", 400, "invalid_request_error"),
        (JSON, b'"' + b"x" * (32 * 2**20) + b'"', 413, "request_too_large"),
    ],
    ids=["no type", "text", "empty", "cut", "no messages", "deep", "too long"],
)
def test_bad_bodies(
    server: Server, path: str, headers: dict[str, str], content: bytes, status: int, kind: str
) -> None:
    answer = server.http.post(path, content=content, headers=headers)
    assert (answer.status_code, error(answer)["type"]) == (status, kind)


def test_half_a_surrogate_pair_is_read(server: Server) -> None:
    content = json.dumps(body("a\nb")).encode().replace(b"b", rb"\ud83d!")
    answer = server.http.post(MESSAGES, content=content, headers=JSON)
    assert answer.json()["content"] == [{"type": "text", "text": "\ufffd!"}]


def test_while_the_model_loads() -> None:
    with run_server("slow") as server:
        server.until(lambda report: "worker_pid" in report)
        for path, fields in ((MESSAGES, {}), (MESSAGES, {"stream": True}), (COUNT, {})):
            answer = server.http.post(path, json=body("x", **fields))
            assert (answer.status_code, error(answer)["type"]) == (529, "overloaded_error")
            assert int(answer.headers["retry-after"]) >= 1
            assert answer.headers["x-should-retry"] == "true"
            assert server.http.post(path, json=body("x", system=5)).status_code == 400
        with pytest.raises(anthropic.OverloadedError):
            server.anthropic.messages.create(
                model="m", max_tokens=9, messages=[{"role": "user", "content": "x"}]
            )


def test_too_many_wait(server: Server) -> None:
    waiting = 32
    clients = []
    for _ in range(SLOTS + waiting):
        client = socket.create_connection(("127.0.0.1", server.port))
        client.sendall(request(MESSAGES, body(LONG, stream=True)))
        clients.append(client)
    server.until(lambda report: report["waiting"] == waiting)
    for stream in (False, True):
        answer = server.http.post(MESSAGES, json=body("x", stream=stream))
        assert (answer.status_code, error(answer)["type"]) == (429, "rate_limit_error")
        assert int(answer.headers["retry-after"]) >= 1
    assert server.http.post(COUNT, json=body("x")).json() == {"input_tokens": len("user> x\n")}
    for client in clients:
        client.close()
