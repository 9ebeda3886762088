"""Keys and guards on a real port: who comes in, and what the others are told."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import anthropic
import openai
import pytest

from mashbox.http.keys import own_tenant

CHAT_PAGE = "https://chat.example.com"
UMLAUT = "schlüssel-1"
KEYS = f"# who may\nred-key-1 red\nred-key-2 red\n{UMLAUT} green\nnameless-key\n"
VARIABLE_KEY = "variable-key"
SECRETS = ("red-key-1", "red-key-2", "chlüssel-1", "nameless-key", VARIABLE_KEY, "wrong-key", "new-key")


@dataclass
class Guarded:
    """A server with keys, and what it has logged so far."""

    port: int
    process: subprocess.Popen[bytes]
    keys: Path
    log: Path

    def logged(self) -> str:
        return self.log.read_text()

    def until_logged(self, text: str, times: int = 1) -> None:
        deadline = time.monotonic() + 10
        while self.logged().count(text) < times:
            assert time.monotonic() < deadline, self.logged()
            time.sleep(0.01)


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    def error(self) -> dict[str, str]:
        told: dict[str, str] = json.loads(self.body)["error"]
        return told


@contextmanager
def run_guarded(folder: Path, *origins: str) -> Iterator[Guarded]:
    keys, log = folder / "keys", folder / "log"
    keys.write_text(KEYS)
    keys.chmod(0o600)
    listener = socket.create_server(("127.0.0.1", 0))
    command = [sys.executable, "-m", "tests.api.guarded", str(listener.fileno()), str(keys), *origins]
    environment = os.environ | {"MASHBOX_API_KEY": VARIABLE_KEY}
    with listener, log.open("wb") as output:
        port = listener.getsockname()[1]
        process = subprocess.Popen(
            command, pass_fds=[listener.fileno()], stdout=output, stderr=output, env=environment
        )
    with process:
        guarded = Guarded(port, process, keys, log)
        guarded.until_logged("ready")
        yield guarded
        process.terminate()
        assert process.wait(15) == 0


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with run_guarded(tmp_path_factory.mktemp("guarded"), CHAT_PAGE) as guarded:
        yield guarded


def send(port: int, head: bytes, body: bytes = b"") -> Answer:
    """One request as these bytes, and its answer; the connection ends with it."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        client.sendall(head + b"\r\n" + body)
        received = b""
        while more := client.recv(65536):
            received += more
    start, _, content = received.partition(b"\r\n\r\n")
    status, *lines = start.decode("latin-1").split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines)
    return Answer(int(status.split()[1]), headers, content)


def ask(box: Guarded, line: str, *headers: str | bytes, body: object = None, host: str | None = "") -> Answer:
    """A request; `host` "" is the right one, None is none at all."""
    lines: list[str | bytes] = [f"{line} HTTP/1.1", "Connection: close", *headers]
    if host is not None:
        lines.append(f"Host: {host or f'127.0.0.1:{box.port}'}")
    content = b"" if body is None else json.dumps(body).encode()
    if body is not None:
        lines.append(f"Content-Length: {len(content)}")
    raw = [text if isinstance(text, bytes) else text.encode() for text in lines]
    return send(box.port, b"".join(text + b"\r\n" for text in raw), content)


JSON = "application/json"
MESSAGES = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 8}
ROUTES: dict[str, tuple[str, object]] = {
    "health": ("GET /health", None),
    "v1 health": ("GET /v1/health", None),
    "root": ("GET /", None),
    "models": ("GET /v1/models", None),
    "metrics": ("GET /metrics", None),
    "chat": ("POST /v1/chat/completions", MESSAGES),
    "completions": ("POST /v1/completions", {"prompt": "hi", "max_tokens": 8}),
    "responses": ("POST /v1/responses", {"input": "hi", "max_output_tokens": 8}),
    "messages": ("POST /v1/messages?beta=true", MESSAGES),
    "count": ("POST /v1/messages/count_tokens", MESSAGES),
    "nothing": ("GET /v1/nothing", None),
}
OPEN = ("health", "v1 health", "root")
HOSTS = {"": True, "localhost": True, "box.example.com:9": True, "a.lan.example": True, "evil.example": False}
ORIGINS = {None: True, "own": True, CHAT_PAGE: True, "https://evil.example": False, "null": False}
TYPES = (JSON, "text/plain", "application/x-www-form-urlencoded")
SENT_KEYS: dict[tuple[str, ...], bool] = {
    (): False,
    ("Authorization: Bearer red-key-1",): True,
    ("x-api-key: nameless-key",): True,
    ("x-api-key: wrong-key",): False,
    ("Authorization: Bearer red-key-1", "x-api-key: red-key-2"): False,
}


def expected(route: str, host: str, origin: str | None, kind: str, keys: tuple[str, ...]) -> int:
    """What the rules say, in their order."""
    if not HOSTS[host] or not ORIGINS[origin]:
        return 403
    if route not in OPEN and not SENT_KEYS[keys]:
        return 401
    if route == "nothing":
        return 404
    return 415 if ROUTES[route][1] is not None and kind != JSON else 200


OPENAI_TYPES = {415: "invalid_request_error", 404: "invalid_request_error"} | dict.fromkeys(
    (401, 403), "invalid_request_error"
)
ANTHROPIC_TYPES = {401: "authentication_error", 403: "permission_error", 415: "invalid_request_error"}


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("origin", ORIGINS)
def test_the_matrix(box: Guarded, route: str, host: str, origin: str | None) -> None:
    line, body = ROUTES[route]
    page = f"http://{host or f'127.0.0.1:{box.port}'}" if origin == "own" else origin
    headers = [] if page is None else [f"Origin: {page}"]
    for kind in TYPES:
        for keys in SENT_KEYS:
            answer = ask(box, line, *headers, f"Content-Type: {kind}", *keys, body=body, host=host)
            case = (kind, keys, answer)
            assert answer.status == expected(route, host, origin, kind, keys), case
            assert answer.headers["x-request-id"].startswith("req_"), case
            cors = answer.headers.get("access-control-allow-origin")
            assert cors == (CHAT_PAGE if origin == CHAT_PAGE and HOSTS[host] else None), case
            assert ("www-authenticate" in answer.headers) == (answer.status == 401), case
            if answer.status != 200:
                types = ANTHROPIC_TYPES if route in ("messages", "count") else OPENAI_TYPES
                assert answer.error()["type"] == types[answer.status], case
                assert not any(secret in answer.body.decode() for secret in SECRETS), case


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET /health HTTP/1.0\r\n", 403),
        (b"GET /health HTTP/1.0\r\nHost: localhost\r\n", 200),
        (b"GET /health HTTP/1.0\r\nHost: evil.example\r\n", 403),
        (b"GET /health HTTP/1.1\r\nConnection: close\r\n", 403),
        (b"GET /health HTTP/1.1\r\nConnection: close\r\nHost:\r\n", 403),
        (b"GET /health HTTP/1.1\r\nConnection: close\r\nHost: localhost\r\nhost: localhost\r\n", 403),
        (b"GET /health HTTP/1.1\r\nConnection: close\r\nHost: \xff\r\n", 403),
        (b"HEAD /v1/models HTTP/1.1\r\nConnection: close\r\nHost: localhost\r\n", 200),
        (b"HEAD /v1/models HTTP/1.1\r\nConnection: close\r\nHost: evil.example\r\n", 403),
        (b"HEAD / HTTP/1.1\r\nConnection: close\r\nHost: localhost\r\nSec-Fetch-Site: cross-site\r\n", 403),
        (b"OPTIONS /v1/models HTTP/1.1\r\nConnection: close\r\nHost: localhost\r\n", 405),
        (b"OPTIONS /v1/models HTTP/1.1\r\nConnection: close\r\nHost: evil.example\r\n", 403),
        # What stands in the request line does not make up for a wrong header, nor for a missing key.
        (b"GET http://localhost/health HTTP/1.1\r\nConnection: close\r\nHost: evil.example\r\n", 403),
        (b"GET http://evil.example/v1/models HTTP/1.1\r\nConnection: close\r\nHost: localhost\r\n", 401),
        (b"GET /v1/%6dodels HTTP/1.1\r\nConnection: close\r\nHost: localhost\r\n", 401),
        (b"GET /v1/health/../models HTTP/1.1\r\nConnection: close\r\nHost: localhost\r\n", 401),
        (b"GET //v1/models HTTP/1.1\r\nConnection: close\r\nHost: localhost\r\n", 404),
        (b"GET /metrics?x=/health HTTP/1.1\r\nConnection: close\r\nHost: localhost\r\n", 401),
        (b"GET /openapi.json HTTP/1.1\r\nConnection: close\r\nHost: localhost\r\n", 401),
        (b"GET /openapi.json%0a HTTP/1.1\r\nConnection: close\r\nHost: localhost\r\n", 401),
        (b"GET /metrics%0A HTTP/1.1\r\nConnection: close\r\nHost: localhost\r\n", 401),
        (b"GET /api/v1/turns HTTP/1.1\r\nConnection: close\r\nHost: localhost\r\n", 401),
    ],
)
def test_on_the_wire(box: Guarded, head: bytes, status: int) -> None:
    assert send(box.port, head).status == status


@pytest.mark.parametrize(
    ("header", "status"),
    [
        ("Authorization: Bearer " + UMLAUT, 200),
        ("x-api-key: " + UMLAUT, 200),
        (f"x-api-key: {UMLAUT}".encode("latin-1"), 200),
        ("x-api-key: " + UMLAUT.replace("ü", "u"), 401),
        (b"x-api-key: \xff\xfe\x80", 401),
        (f"authorization: bearer {VARIABLE_KEY}", 200),
        ("AUTHORIZATION: BEARER red-key-2", 200),
    ],
)
def test_keys_as_bytes(box: Guarded, header: str | bytes, status: int) -> None:
    assert ask(box, "GET /v1/models", header).status == status


def test_a_preflight_needs_no_key(box: Guarded) -> None:
    wanted = (
        "Access-Control-Request-Method: POST",
        "Access-Control-Request-Headers: x-api-key,x-stainless-os",
    )
    line = "OPTIONS /v1/messages"
    answer = ask(box, line, f"Origin: {CHAT_PAGE}", *wanted, "Access-Control-Request-Private-Network: true")
    assert (answer.status, answer.body) == (204, b"")
    assert answer.headers["access-control-allow-headers"] == "x-api-key,x-stainless-os"
    assert answer.headers["access-control-allow-private-network"] == "true"
    refused = ask(box, line, "Origin: https://evil.example", *wanted)
    assert (refused.status, refused.error()["type"]) == (403, "permission_error")
    assert "access-control-allow-headers" not in refused.headers


def test_a_page_can_read_that_its_key_is_wrong(box: Guarded) -> None:
    answer = ask(box, "GET /v1/models", f"Origin: {CHAT_PAGE}", "x-api-key: wrong-key")
    assert (answer.status, answer.error()["code"]) == (401, "invalid_api_key")
    assert answer.headers["access-control-allow-origin"] == CHAT_PAGE
    assert "retry-after" in answer.headers["access-control-expose-headers"]


@pytest.mark.parametrize(("scheme", "status"), [("https", 200), ("http", 403), ("gopher", 403)])
def test_a_proxy_on_this_machine_says_that_it_speaks_tls(box: Guarded, scheme: str, status: int) -> None:
    proxied = ("Origin: https://box.example.com", f"X-Forwarded-Proto: {scheme}", "x-api-key: red-key-1")
    assert ask(box, "GET /v1/models", *proxied, host="box.example.com").status == status


def test_official_clients(box: Guarded) -> None:
    url = f"http://127.0.0.1:{box.port}"
    with (
        openai.OpenAI(base_url=f"{url}/v1", api_key="red-key-1", max_retries=0) as chat,
        anthropic.Anthropic(base_url=url, api_key="red-key-1", max_retries=0) as messages,
    ):
        assert chat.models.list().data[0].id == "org/scripted"
        answer = messages.messages.create(
            model="any", max_tokens=8, messages=[{"role": "user", "content": "hi"}]
        )
        assert answer.content[0].type == "text"
        with pytest.raises(openai.AuthenticationError, match="not one of"):
            chat.with_options(api_key="wrong-key").models.list()
        with pytest.raises(anthropic.AuthenticationError, match="not one of"):
            messages.with_options(api_key="wrong-key").models.list()
        page = {"Origin": "https://evil.example"}
        with pytest.raises(openai.PermissionDeniedError):
            chat.models.list(extra_headers=page)
        with pytest.raises(anthropic.PermissionDeniedError):
            messages.messages.count_tokens(
                model="any", messages=[{"role": "user", "content": "hi"}], extra_headers=page
            )


def works(box: Guarded, key: str) -> bool:
    return ask(box, "GET /v1/models", f"x-api-key: {key}").status == 200


def test_keys_are_read_again(tmp_path: Path) -> None:
    with run_guarded(tmp_path) as box:
        assert [works(box, key) for key in ("red-key-1", "new-key", VARIABLE_KEY)] == [True, False, True]
        box.keys.write_text("new-key red\n")
        box.process.send_signal(signal.SIGHUP)
        box.until_logged("was read again")
        assert [works(box, key) for key in ("red-key-1", "new-key", VARIABLE_KEY)] == [False, True, True]
        for times, (content, mode) in enumerate([("a b c\n", 0o600), ("# none\n", 0o600), ("k\n", 0o644)], 1):
            box.keys.write_text(content)
            box.keys.chmod(mode)
            box.process.send_signal(signal.SIGHUP)
            box.until_logged("the keys stay as they were", times)
            assert works(box, "new-key")
        box.keys.unlink()
        box.process.send_signal(signal.SIGHUP)
        box.until_logged("the keys stay as they were", 4)
        assert works(box, "new-key")
        assert not any(secret in box.logged() for secret in SECRETS)


def test_no_key_is_logged_or_handed_on(box: Guarded) -> None:
    for key in ("red-key-1", "wrong-key", VARIABLE_KEY):
        ask(box, "POST /v1/messages", f"x-api-key: {key}", f"Content-Type: {JSON}", body=MESSAGES)
    metrics = ask(box, "GET /metrics", "x-api-key: nameless-key").body.decode()
    assert "mashbox:" in metrics
    worker = json.loads(ask(box, "GET /health").body)["worker_pid"]
    shown = [
        box.logged(),
        metrics,
        Path(f"/proc/{worker}/environ").read_text(),
        Path(f"/proc/{box.process.pid}/cmdline").read_text(),
        Path(f"/proc/{worker}/cmdline").read_text(),
    ]
    for place, text in enumerate(shown):
        assert not any(secret in text for secret in SECRETS), place
        assert own_tenant(b"nameless-key") not in metrics
