"""http/boundary.py: every request has an id, one end, and an answer whatever is raised."""

from __future__ import annotations

import asyncio
import gc
import json
import weakref

import pytest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mashbox.errors import OverloadedError
from mashbox.http.boundary import BoundaryMiddleware
from mashbox.http.record import RequestRecord


def run(app: ASGIApp, path: str = "/v1/models") -> tuple[list[Message], list[RequestRecord]]:
    """What was sent, and the records of the requests that ended."""
    sent: list[Message] = []
    ended: list[RequestRecord] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": path, "headers": []}
    asyncio.run(BoundaryMiddleware(app, ended.append)(scope, receive, send))
    return sent, ended


def headers_of(message: Message) -> dict[bytes, bytes]:
    return dict(message["headers"])


async def fine(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"a", b"b")]})
    await send({"type": "http.response.body", "body": b"x"})


def raising(error: Exception, begun: bool = False) -> ASGIApp:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if begun:
            await send({"type": "http.response.start", "status": 200, "headers": []})
        raise error

    return app


def test_an_answer_carries_the_records_id() -> None:
    sent, [record] = run(fine)
    assert headers_of(sent[0]) == {b"a": b"b", b"x-request-id": record.id.encode()}
    assert (record.status, record.method, record.path) == (200, "POST", "/v1/models")
    assert record.seconds >= 0


def test_an_error_is_answered_in_its_shape() -> None:
    sent, [record] = run(raising(OverloadedError("busy", retry_after=3)), "/v1/messages")
    assert record.status == sent[0]["status"] == 429
    told = json.loads(sent[1]["body"])
    assert (told["error"]["type"], told["request_id"]) == ("rate_limit_error", record.id)
    assert headers_of(sent[0])[b"request-id"] == headers_of(sent[0])[b"x-request-id"] == record.id.encode()


@pytest.mark.parametrize(
    ("path", "kind"), [("/v1/messages", "api_error"), ("/v1/chat/completions", "server_error")]
)
def test_a_bug_is_told_in_the_shape_of_its_path(path: str, kind: str) -> None:
    sent, [record] = run(raising(KeyError("secret")), path)
    assert (record.status, headers_of(sent[0])[b"connection"]) == (500, b"close")
    told = json.loads(sent[1]["body"])["error"]
    assert told["type"] == kind
    assert "secret" not in told["message"]


def test_a_success_of_anthropics_has_its_id_twice() -> None:
    sent, [record] = run(fine, "/v1/messages/count_tokens")
    assert headers_of(sent[0])[b"request-id"] == headers_of(sent[0])[b"x-request-id"] == record.id.encode()


def test_what_is_raised_in_mid_answer_ends_it_once(caplog: pytest.LogCaptureFixture) -> None:
    sent, [record] = run(raising(KeyError("secret"), begun=True))
    assert record.error == "internal_error"
    assert [line.getMessage() for line in caplog.records] == [f"a bug ended {record.id}"]
    assert [message["type"] for message in sent] == ["http.response.start"]
    assert record.status == 200


def test_a_failed_request_is_forgotten_at_once() -> None:
    """Not only when the garbage collector comes by: bodies are large."""

    class Body:
        pass

    kept: list[weakref.ref[Body]] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        body = Body()
        kept.append(weakref.ref(body))
        try:
            raise KeyError(body)
        except KeyError:
            raise OverloadedError("busy", retry_after=3) from None

    gc.disable()
    try:
        run(app)
        assert kept[0]() is None
    finally:
        gc.enable()
