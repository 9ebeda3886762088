"""The log of a real server: one line per request, JSON when asked for, and nothing of their content."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2 as httpx
import msgspec
import pytest

from mashbox.config import LogConfig

SECRET = "unlikely-marker"
MESSAGES = [{"role": "user", "content": "hello"}]
GENERATING: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": MESSAGES},
    "/v1/completions": {"prompt": "hello"},
    "/v1/messages": {"messages": MESSAGES, "max_tokens": 100},
    "/v1/responses": {"input": "hello"},
}


@dataclass
class Logged:
    """A running server and the file that its log goes to."""

    process: subprocess.Popen[bytes]
    port: int
    file: Path
    http: httpx.Client = field(init=False)

    def __post_init__(self) -> None:
        self.http = httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=20)

    def until_ready(self) -> None:
        deadline = time.monotonic() + 20
        while self.http.get("/health").status_code != 200:
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def lines(self) -> list[dict[str, Any]]:
        """All lines so far; each must be JSON."""
        return [json.loads(line) for line in self.file.read_text().splitlines()]

    def line(self, request_id: str) -> dict[str, Any]:
        """The one line of a request."""
        return self.only(lambda line: line.get("request_id") == request_id)

    def only(self, true: Any) -> dict[str, Any]:
        """The one request line that is so; it may come soon."""
        deadline = time.monotonic() + 5
        while True:
            found = [line for line in self.lines() if line["message"] == "request" and true(line)]
            if found or time.monotonic() > deadline:
                assert len(found) == 1, found
                return found[0]
            time.sleep(0.02)

    def end(self) -> None:
        """SIGTERM: everything that was logged is then in the file."""
        self.http.close()
        self.process.terminate()
        assert self.process.wait(15) == 0


@contextmanager
def run_logged(file: Path, config: LogConfig) -> Iterator[Logged]:
    told = msgspec.json.encode(config).decode()
    with socket.create_server(("127.0.0.1", 0)) as listener, file.open("wb") as stderr:
        command = [sys.executable, "-m", "tests.api.serve_logged", str(listener.fileno()), told]
        process = subprocess.Popen(command, pass_fds=[listener.fileno()], stderr=stderr)
        logged = Logged(process, listener.getsockname()[1], file)
    try:
        logged.until_ready()
        yield logged
        if process.poll() is None:
            logged.end()
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Logged]:
    file = tmp_path_factory.mktemp("log") / "server.log"
    with run_logged(file, LogConfig("debug", json=True)) as server:
        yield server


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("route", GENERATING)
def test_each_answer_has_one_line(logged: Logged, route: str, stream: bool) -> None:
    headers = {"X-Request-Id": "mine.1", "X-Session-Id": "from-header"}
    body = GENERATING[route] | {"stream": stream, "prompt_cache_key": "from-body"}
    answer = logged.http.post(route, json=body, headers=headers)
    assert answer.status_code == 200
    request_id = answer.headers["x-request-id"]
    assert answer.headers.get("request-id") == (request_id if route == "/v1/messages" else None)
    line = logged.line(request_id)
    assert (line["method"], line["route"], line["status"]) == ("POST", route, 200)
    assert (line["finish"], line["session"], line["client_request_id"]) == ("stop", "from-header", "mine.1")
    assert line["answer_id"] in answer.text
    assert line["prompt_tokens"] in (5, 12)
    assert (line["cached_tokens"], line["completion_tokens"]) == (0, 6)
    assert 0 <= line["queue_s"] <= line["first_token_s"] <= line["seconds"] < 20
    assert line["tokens_per_s"] > 0
    assert (line["level"], line["process"]) == ("info", "server")
    assert "tenant" not in line
    assert "pieces" not in line


def test_the_bodys_session_counts_without_a_header(logged: Logged) -> None:
    for route, body in GENERATING.items():
        answer = logged.http.post(route, json=body | {"prompt_cache_key": "from-body"})
        assert logged.line(answer.headers["x-request-id"])["session"] == "from-body"


def test_counting_has_a_line(logged: Logged) -> None:
    answer = logged.http.post("/v1/messages/count_tokens", json={"messages": MESSAGES})
    assert answer.headers["request-id"] == answer.headers["x-request-id"]
    line = logged.line(answer.headers["x-request-id"])
    assert (line["prompt_tokens"], line["finish"]) == (answer.json()["input_tokens"], "counted")


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "finish", "route"),
    [
        ("GET", "/v1/models", None, 200, None, "/v1/models"),
        ("GET", f"/{SECRET}", None, 404, "unknown_url", "-"),
        ("DELETE", "/v1/messages", None, 405, "invalid_request_error", "/v1/messages"),
        ("GET", "/v1/models/other", None, 404, "model_not_found", "/v1/models/{model:path}"),
        ("POST", "/v1/responses", {"input": 5}, 400, "invalid_request_error", "/v1/responses"),
        ("POST", "/v1/messages", {}, 400, "invalid_request_error", "/v1/messages"),
        (
            *("POST", "/v1/completions", {"prompt": "x" * 9000}, 400),
            *("context_length_exceeded", "/v1/completions"),
        ),
        ("POST", "/v1/completions", {"prompt": "ab[fail]"}, 500, "engine_error", "/v1/completions"),
    ],
)
def test_refused_and_failed(
    logged: Logged, method: str, path: str, body: Any, status: int, finish: str | None, route: str
) -> None:
    answer = logged.http.request(method, path, json=body)
    assert answer.status_code == status
    line = logged.line(answer.headers["x-request-id"])
    assert (line["status"], line.get("finish"), line["route"]) == (status, finish, route)


def test_a_stream_that_fails_tells_what_it_had(logged: Logged) -> None:
    answer = logged.http.post("/v1/completions", json={"prompt": "ab[fail]", "stream": True})
    line = logged.line(answer.headers["x-request-id"])
    assert (line["status"], line["finish"], line["pieces"]) == (200, "engine_error", 2)
    assert "completion_tokens" not in line
    assert line["first_token_s"] >= line["queue_s"]


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_is_logged_with_what_it_had(logged: Logged, stream: bool) -> None:
    session = f"leaver-{stream}"
    body = json.dumps({"prompt": "ab" + "[pause]" * 200, "stream": stream, "prompt_cache_key": session})
    head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
    with socket.create_connection(("127.0.0.1", logged.port)) as client:
        client.sendall(f"{head}Content-Type: application/json\r\n\r\n{body}".encode())
        deadline = time.monotonic() + 5
        while not logged.http.get("/health").json()["live_rows"]:
            assert time.monotonic() < deadline
        time.sleep(0.2)
    line = logged.only(lambda line: line.get("session") == session)
    assert (line["status"], line["finish"]) == (200 if stream else 499, "cancelled")
    assert line["pieces"] == 2
    assert line["prompt_tokens"] == 2 + 7 * 200


def test_polls_are_logged_at_debug(logged: Logged) -> None:
    for method, path in (("GET", "/health"), ("GET", "/metrics"), ("GET", "/"), ("HEAD", "/v1/models")):
        request_id = logged.http.request(method, path).headers["x-request-id"]
        assert logged.line(request_id)["level"] == "debug"


def test_the_worker_speaks_json_and_names_the_request(logged: Logged) -> None:
    answer = logged.http.post("/v1/completions", json={"prompt": "named[fail]"})
    assert answer.status_code == 500
    engine_id = logged.line(answer.headers["x-request-id"])["answer_id"].removeprefix("cmpl-")
    told = [line for line in logged.lines() if engine_id in line["message"]]
    assert {line["process"] for line in told} == {"worker"}
    assert {line["level"] for line in told} == {"debug", "error"}
    assert "RuntimeError: (message left out)" in told[-1]["exception"]


@pytest.mark.parametrize("name", ["a\nb", "\x1b[31m", "x" * 500, 'a"  tenant root', "ü日\u202e"])
def test_a_session_is_logged_and_told_back_cut_and_on_one_line(logged: Logged, name: str) -> None:
    answer = logged.http.post("/v1/responses", json={"input": "hello", "prompt_cache_key": name})
    session = logged.line(answer.headers["x-request-id"])["session"]
    assert session == answer.json()["prompt_cache_key"]
    assert session.isprintable()
    assert len(session) <= 64


def everywhere(secret: str, content: str) -> dict[str, dict[str, Any]]:
    """A body for each route with the secret in every field that takes a text."""
    messages = [
        {"role": "system", "content": content},
        {"role": "user", "content": content, "name": secret},
        {
            "role": "assistant",
            "content": content,
            "reasoning_content": secret,
            "tool_calls": [
                {"id": secret, "type": "function", "function": {"name": secret, "arguments": f'"{secret}"'}}
            ],
        },
        {"role": "tool", "tool_call_id": secret, "content": content},
        {"role": "user", "content": content},
    ]
    schema = {"type": "object", "properties": {secret: {"type": "string", "enum": [secret]}}}
    function = {"name": secret, "description": secret, "parameters": schema}
    shared: dict[str, Any] = {"stop": [f"{secret}-end"], "user": secret, "metadata": {"user_id": secret}}
    anthropic = {
        "messages": [{"role": "user", "content": [{"type": "text", "text": content}]}],
        "system": secret,
        "tools": [{"name": secret, "description": secret, "input_schema": schema}],
    }
    return {
        "/v1/chat/completions": shared
        | {
            "messages": messages,
            "tools": [{"type": "function", "function": function}],
            "chat_template_kwargs": {secret: secret},
        },
        "/v1/completions": shared | {"prompt": content, "suffix": secret},
        "/v1/messages": shared
        | anthropic
        | {"model": secret, "max_tokens": 5, "tool_choice": {"type": "tool", "name": secret}},
        "/v1/messages/count_tokens": anthropic | {"model": secret},
        "/v1/responses": shared
        | {
            "input": content,
            "instructions": secret,
            "tools": [{"type": "function"} | function],
            "client_metadata": {"a": secret},
            "include": [secret],
        },
    }


def broken(body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The same with each field in turn replaced by something that does not fit."""
    for name in body:
        for wrong in ([SECRET, 5], {SECRET: SECRET}, SECRET):
            yield body | {name: wrong}
    yield body | {"temperature": SECRET, "model": SECRET}


def ask_everything(logged: Logged) -> Counter[int]:
    """How often each status was answered."""
    statuses: Counter[int] = Counter()
    headers = {"Authorization": f"Bearer {SECRET}", "X-Other": SECRET, "User-Agent": SECRET, "Cookie": SECRET}
    headers |= {"X-Request-Id": f"{SECRET} not well formed", "anthropic-beta": SECRET}
    for content in (SECRET, f"[fail]{SECRET}"):
        for route, body in everywhere(SECRET, content).items():
            for sent in (body, body | {"stream": True}, *broken(body)):
                answer = logged.http.post(f"{route}?q={SECRET}", json=sent, headers=headers)
                statuses[answer.status_code] += 1
    for raw in (f'{{"{SECRET}": ', f"{SECRET}", f'{{"messages": "{SECRET}\\ud800"}}', f'["{SECRET}"]'):
        for route in GENERATING:
            logged.http.post(
                route, content=raw, headers=headers | {"Content-Type": f"application/json; {SECRET}"}
            )
            logged.http.post(route, content=raw, headers=headers | {"Content-Type": SECRET})
    for path in (f"/{SECRET}", f"/v1/models/{SECRET}", f"/v1/messages/{SECRET}", f"/v1/models?{SECRET}"):
        logged.http.get(path, headers=headers)
    return statuses


@pytest.mark.parametrize("as_json", [False, True])
def test_nothing_of_a_request_is_in_the_log(tmp_path: Path, as_json: bool) -> None:
    with run_logged(tmp_path / "log", LogConfig("trace", json=as_json)) as logged:
        statuses = ask_everything(logged)
        assert min(statuses[status] for status in (200, 400, 500)) > 10, statuses
        logged.http.post("/v1/completions", json={"prompt": "a"}, headers={"X-Session-Id": f"s-{SECRET}"})
        logged.end()
        log = logged.file.read_text()
        if as_json:
            assert len(logged.lines()) > 100
    assert log.count("RuntimeError: (message left out)") > 10
    assert re.findall(rf".{{0,40}}{SECRET}", log.replace(f"s-{SECRET}", "")) == []
    assert log.count(f"s-{SECRET}") == 1


@pytest.mark.parametrize("as_json", [False, True])
def test_prompts_and_answers_are_logged_when_asked_for(tmp_path: Path, as_json: bool) -> None:
    said = f"{SECRET}\nforged line\x1b[1m"
    with run_logged(tmp_path / "log", LogConfig(json=as_json, prompts=True)) as logged:
        answer = logged.http.post(
            "/v1/chat/completions", json={"messages": [{"role": "user", "content": said}]}
        )
        assert answer.json()["choices"][0]["message"]["content"] == "forged line\x1b[1m"
        logged.end()
    log = logged.file.read_text()
    if not as_json:
        assert f"\n  | user> {SECRET}\n  | forged line\\x1b[1m\n" in log
        assert re.search(r"answer chatcmpl-\w{32}\n  \| forged line\\x1b\[1m\n", log)
        return
    prompt, told = (line for line in logged.lines() if line["message"] in ("prompt", "answer"))
    assert prompt["text"] == f"user> {said}\n"
    assert told["text"] == "forged line\x1b[1m"
    assert told["answer_id"] == answer.json()["id"] == f"chatcmpl-{prompt['engine_id']}"
    assert told["request_id"] == answer.headers["x-request-id"]


def test_a_log_that_nobody_reads_stops_nothing() -> None:
    """Standard error is a pipe that is full; then it has no reader at all."""
    reading, writing = os.pipe()
    told = msgspec.json.encode(LogConfig("debug")).decode()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        command = [sys.executable, "-m", "tests.api.serve_logged", str(listener.fileno()), told]
        process = subprocess.Popen(command, pass_fds=[listener.fileno()], stderr=writing)
        logged = Logged(process, listener.getsockname()[1], Path())
    os.close(writing)
    try:
        logged.until_ready()
        for _ in range(1000):  # 64 KiB fit into the pipe
            assert logged.http.get("/v1/models").status_code == 200
        assert logged.http.post("/v1/completions", json={"prompt": "ab[fail]"}).status_code == 500
        os.close(reading)
        assert logged.http.post("/v1/completions", json={"prompt": "ab"}).status_code == 200
        logged.end()
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            process.wait()
