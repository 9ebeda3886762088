"""http/auth.py: who needs a key, and what counts as one."""

from __future__ import annotations

import asyncio
import json

import pytest
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from mashbox.errors import AuthenticationError, ForbiddenError
from mashbox.http.auth import AuthMiddleware, authenticate, needs_key
from mashbox.http.errors import error_response
from mashbox.http.keys import KeyRing, Keys, parse_keys
from mashbox.http.record import RequestRecord, open_record
from tests.api.serve import build

RING = KeyRing(parse_keys("k1 red\nk2 red\nk3 blue\nschlüssel green\n".encode(), "keys"))
UMLAUT = "schlüssel".encode()


@pytest.mark.parametrize(
    ("method", "path", "needed"),
    [
        ("GET", "/", False),
        ("GET", "/health", False),
        ("GET", "/v1/health", False),
        ("POST", "/v1/health", False),
        ("GET", "/favicon.ico", False),
        ("GET", "/v1", True),
        ("GET", "/v1/", True),
        ("GET", "/v1/models", True),
        ("GET", "/v1/models/a/b", True),
        ("GET", "/v1/nothing", True),
        ("GET", "/v1/health/", True),
        ("GET", "/v1/health/../models", True),
        ("POST", "/v1/messages", True),
        ("PUT", "/v1/messages", True),
        ("GET", "/api/v1/turns", True),
        ("GET", "/metrics", True),
        ("GET", "/openapi.json", True),
        ("GET", "/metrics\n", True),
        ("GET", "/openapi.json\n", True),
        ("HEAD", "/v1/models", False),
        ("OPTIONS", "/v1/models", False),
    ],
)
def test_who_needs_a_key(method: str, path: str, needed: bool) -> None:
    assert needs_key(method, path) is needed


def test_every_route_but_health_needs_a_key() -> None:
    routes = [route for route in build("none").routes if isinstance(route, Route)]
    free = {route.path for route in routes if not needs_key("GET", route.path)}
    assert free == {"/", "/health", "/v1/health"}


@pytest.mark.parametrize(
    ("headers", "tenant"),
    [
        ([(b"authorization", b"Bearer k1")], "red"),
        ([(b"authorization", b"bearer k1")], "red"),
        ([(b"authorization", b"BEARER   k1 ")], "red"),
        ([(b"x-api-key", b"k3")], "blue"),
        ([(b"x-api-key", b" k3\t")], "blue"),
        ([(b"authorization", b"Bearer k3"), (b"x-api-key", b"k3")], "blue"),
        ([(b"x-api-key", b"k3"), (b"x-api-key", b"k3")], "blue"),
        ([(b"authorization", b"Basic dTpw"), (b"x-api-key", b"k3")], "blue"),
        ([(b"authorization", b"Bearer "), (b"x-api-key", b"k3")], "blue"),
        ([(b"authorization", b"Bearer " + UMLAUT)], "green"),
        ([(b"x-api-key", "schlüssel".encode("latin-1"))], "green"),
    ],
)
def test_keys_that_count(headers: list[tuple[bytes, bytes]], tenant: str) -> None:
    assert authenticate(RING, headers) == tenant


@pytest.mark.parametrize(
    ("headers", "told"),
    [
        ([], "needs an API key"),
        ([(b"authorization", b"")], "needs an API key"),
        ([(b"authorization", b"Bearer")], "needs an API key"),
        ([(b"authorization", b"k1")], "needs an API key"),
        ([(b"authorization", b"Basic k1")], "needs an API key"),
        ([(b"x-api-key", b"")], "needs an API key"),
        ([(b"cookie", b"k1")], "needs an API key"),
        ([(b"authorization", b"Bearer nope")], "not one of"),
        ([(b"authorization", b"Bearer k1 k2")], "not one of"),
        ([(b"x-api-key", b"Bearer k1")], "not one of"),
        ([(b"x-api-key", b"\xff\xfe")], "not one of"),
        ([(b"authorization", b"Bearer k1"), (b"x-api-key", b"k3")], "different"),
        ([(b"authorization", b"Bearer k1"), (b"x-api-key", b"k2")], "different"),
        ([(b"authorization", b"Bearer k1"), (b"x-api-key", b"nope")], "different"),
        ([(b"authorization", b"Bearer k1"), (b"authorization", b"Bearer k2")], "different"),
        ([(b"x-api-key", b"k1"), (b"x-api-key", b"k2")], "different"),
    ],
)
def test_keys_that_do_not(headers: list[tuple[bytes, bytes]], told: str) -> None:
    with pytest.raises(AuthenticationError, match=told) as caught:
        authenticate(RING, headers)
    for key in ("k1", "k2", "k3", "nope"):
        assert key not in str(caught.value)


def run(keys: Keys, path: str, headers: list[tuple[bytes, bytes]]) -> RequestRecord:
    """The record of a request that came through."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None: ...

    async def receive() -> Message:
        raise AssertionError("nothing is read")

    async def send(message: Message) -> None:
        raise AssertionError("nothing is sent")

    scope = {"type": "http", "method": "GET", "path": path, "headers": headers}
    record = open_record(scope)
    asyncio.run(AuthMiddleware(app, keys)(scope, receive, send))
    return record


def test_the_tenant_is_written_down() -> None:
    keys = Keys()
    keys.ring = RING
    assert run(keys, "/v1/models", [(b"x-api-key", b"k3")]).tenant == "blue"
    assert run(keys, "/health", [(b"x-api-key", b"nope")]).tenant == ""


def test_without_keys_any_key_is_ignored() -> None:
    keys = Keys()
    assert run(keys, "/v1/models", [(b"x-api-key", b"a"), (b"authorization", b"Bearer b")]).tenant == ""


def test_new_keys_count_at_once() -> None:
    keys = Keys()
    run(keys, "/v1/models", [])
    keys.ring = RING
    with pytest.raises(AuthenticationError):
        run(keys, "/v1/models", [])


@pytest.mark.parametrize(
    ("error", "status", "openai_code", "anthropic_type"),
    [
        (AuthenticationError("no"), 401, "invalid_api_key", "authentication_error"),
        (ForbiddenError("no", code="host_not_allowed"), 403, "host_not_allowed", "permission_error"),
    ],
)
def test_shapes(error: AuthenticationError, status: int, openai_code: str, anthropic_type: str) -> None:
    openai = error_response(error, RequestRecord("POST", "/v1/responses"))
    told = json.loads(bytes(openai.body))["error"]
    assert (openai.status_code, told["type"], told["code"]) == (status, "invalid_request_error", openai_code)
    messages = error_response(error, RequestRecord("POST", "/v1/messages"))
    told = json.loads(bytes(messages.body))["error"]
    assert (messages.status_code, told["type"]) == (status, anthropic_type)
    for response in (openai, messages):
        assert response.headers.get("www-authenticate") == ("Bearer" if status == 401 else None)
    assert messages.headers.get("x-should-retry") == ("false" if status == 401 else None)
