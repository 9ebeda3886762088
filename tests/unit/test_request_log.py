"""http/request_log.py: the line of each request."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mashbox.http.record import Outcome, RequestRecord, open_record
from mashbox.http.request_log import RequestLog, request_fields, request_text
from mashbox.logs.entry import Entry


async def handle(request: Request) -> Response:
    return Response()


ROUTES = [
    Route("/health", handle),
    Route("/v1/models/{model:path}", handle),
    Route("/v1/chat/completions", handle, methods=["POST"]),
]


def ended(caplog: pytest.LogCaptureFixture, method: str, path: str, status: int = 200) -> tuple[int, Any]:
    """Level and route of the line that a request leaves."""
    caplog.clear()
    record = RequestRecord(method, path, status=status)
    with caplog.at_level(logging.DEBUG):
        RequestLog(ROUTES, ["/health"]).ended(record)
    [line] = caplog.records
    assert isinstance(line.msg, Entry)
    return line.levelno, line.msg.fields["route"]


@pytest.mark.parametrize(
    ("method", "path", "status", "level", "route"),
    [
        ("GET", "/health", 200, logging.DEBUG, "/health"),
        ("GET", "/health", 503, logging.DEBUG, "/health"),
        ("GET", "/health", 403, logging.INFO, "/health"),
        ("POST", "/health", 405, logging.INFO, "/health"),
        ("HEAD", "/anything", 200, logging.DEBUG, "-"),
        ("POST", "/v1/chat/completions", 200, logging.INFO, "/v1/chat/completions"),
        ("GET", "/v1/chat/completions", 405, logging.INFO, "/v1/chat/completions"),
        ("GET", "/v1/models/a/secret", 404, logging.INFO, "/v1/models/{model:path}"),
        ("GET", "/secret", 404, logging.INFO, "-"),
    ],
)
def test_level_and_route(
    caplog: pytest.LogCaptureFixture, method: str, path: str, status: int, level: int, route: str
) -> None:
    assert ended(caplog, method, path, status) == (level, route)


@pytest.mark.parametrize(
    ("status", "error", "outcome", "finish"),
    [
        (200, "", None, ""),
        (200, "", Outcome("a", 1, finish="stop"), "stop"),
        (200, "", Outcome("a", 1), "cancelled"),
        (200, "engine_error", Outcome("a", 1), "engine_error"),
        (499, "cancelled", None, "cancelled"),
        (0, "", None, "cancelled"),
        (429, "rate_limit_exceeded", None, "rate_limit_exceeded"),
    ],
)
def test_how_it_ended(status: int, error: str, outcome: Outcome | None, finish: str) -> None:
    record = RequestRecord("POST", "/", status=status, error=error, outcome=outcome)
    assert record.finish == finish


def headed(*headers: tuple[bytes, bytes]) -> RequestRecord:
    return open_record({"type": "http", "method": "POST", "path": "/", "headers": list(headers)})


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        (b"run-7.a_B", "run-7.a_B"),
        (b"x" * 64, "x" * 64),
        *((bad, "") for bad in (b"", b"x" * 65, b"a b", b"a\xc3\xbc", b"a\n", b'"', b"a/b")),
    ],
)
def test_a_clients_request_id_is_kept_when_well_formed(sent: bytes, kept: str) -> None:
    record = headed((b"x-request-id", sent))
    assert record.client_request_id == kept
    assert record.id.startswith("req_")


def test_the_session_in_the_header_wins() -> None:
    record = headed((b"x-session-id", b"h\x1b\xc3\xbc\xff"))
    record.tag_session("body")
    assert record.session == "h\\x1bü\\xff"
    other = headed()
    names: list[object] = [5, None, {}, "", "body", "later"]
    for name in names:
        other.tag_session(name)
    assert other.session == "body"


def full() -> RequestRecord:
    outcome = Outcome(
        "chatcmpl-9",
        418,
        cached_tokens=384,
        completion_tokens=57,
        queue_s=0.0012,
        first_token_s=0.21,
        tokens_per_s=48.123,
        finish="stop",
    )
    return RequestRecord(
        "POST",
        "/v1/chat/completions",
        id="req_1",
        client_request_id="c1",
        tenant="team a",
        session="s-1",
        status=200,
        seconds=1.2345,
        outcome=outcome,
    )


def test_fields() -> None:
    assert request_fields(full(), "/v1/chat/completions") == {
        "request_id": "req_1",
        "client_request_id": "c1",
        "method": "POST",
        "route": "/v1/chat/completions",
        "status": 200,
        "finish": "stop",
        "seconds": 1.234,
        "tenant": "team a",
        "session": "s-1",
        "answer_id": "chatcmpl-9",
        "prompt_tokens": 418,
        "cached_tokens": 384,
        "completion_tokens": 57,
        "queue_s": 0.001,
        "first_token_s": 0.21,
        "tokens_per_s": 48.1,
    }


def test_text() -> None:
    assert request_text(request_fields(full(), "/v1/chat/completions")) == (
        "200 POST /v1/chat/completions stop           1.23 s     418 in    384 cached    57 out   48.1/s"
        '  queue 0.00 s  first 0.21 s  tenant "team a"  session s-1  theirs c1  chatcmpl-9  req_1'
    )


@pytest.mark.parametrize(
    ("record", "text"),
    [
        (
            RequestRecord("GET", "/", id="req_2", status=200, seconds=0.001),
            "200 GET /r                                   0.00 s  req_2",
        ),
        (
            RequestRecord("POST", "/", id="req_3", seconds=2),
            "--- POST /r                   cancelled      2.00 s  req_3",
        ),
        (
            RequestRecord(
                "POST", "/", id="req_4", status=200, outcome=Outcome("a", 7, 0, pieces=3, queue_s=1.0)
            ),
            "200 POST /r                   cancelled      0.00 s       7 in      0 cached    ~3 out"
            "  queue 1.00 s  a  req_4",
        ),
    ],
)
def test_text_of_what_is_not_known(record: RequestRecord, text: str) -> None:
    assert request_text(request_fields(record, "/r")) == text


def test_a_name_cannot_look_like_more() -> None:
    record = RequestRecord("GET", "/", id="req_5", status=200)
    record.tag_session('x"  tenant root')
    assert 'session "x\\"  tenant root"' in request_text(request_fields(record, "/r"))
