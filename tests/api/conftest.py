"""One real server for all tests here; each test waits until it is ready and ends with it idle."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import anthropic
import httpx2 as httpx
import openai
import pytest

from mashbox import machine
from tests.api.serve import MODEL_ID


@dataclass(frozen=True)
class Server:
    """Where the server is, and clients of it."""

    port: int
    pid: int
    http: httpx.Client
    openai: openai.OpenAI
    anthropic: anthropic.Anthropic

    def chat(self, content: str, **fields: Any) -> httpx.Response:
        messages = [{"role": "user", "content": content}]
        return self.http.post("/v1/chat/completions", json={"messages": messages} | fields)

    def complete(self, prompt: str, **fields: Any) -> httpx.Response:
        return self.http.post("/v1/completions", json={"prompt": prompt} | fields)

    def descriptors(self) -> int:
        """How many the server's process has open."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def health(self) -> dict[str, Any]:
        report: dict[str, Any] = self.http.get("/v1/health").json()
        return report

    def until(self, true: Callable[[dict[str, Any]], bool], seconds: float = 5.0) -> dict[str, Any]:
        """Wait for the health report to be so."""
        deadline = time.monotonic() + seconds
        while not true(report := self.health()):
            assert time.monotonic() < deadline, report
            time.sleep(0.01)
        return report


@contextmanager
def run_server(model_file: str) -> Iterator[Server]:
    """A server process; ended by SIGTERM, which must work within 10 s."""
    listener = machine.bind("127.0.0.1", 0)
    machine.listen(listener)
    port = listener.getsockname()[1]
    command = [sys.executable, "-m", "tests.api.serve", str(listener.fileno()), model_file]
    with listener, subprocess.Popen(command, pass_fds=[listener.fileno()]) as process:
        url = f"http://127.0.0.1:{port}"
        with (
            httpx.Client(base_url=url, timeout=20) as http,
            openai.OpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0) as client,
            anthropic.Anthropic(base_url=url, api_key="unused", max_retries=0) as messages_client,
        ):
            yield Server(port, process.pid, http, client, messages_client)
        process.terminate()
        process.wait(10)


@pytest.fixture(scope="session")
def running_server() -> Iterator[Server]:
    with run_server("scripted.gguf") as server:
        yield server


@pytest.fixture
def server(running_server: Server) -> Iterator[Server]:
    running_server.until(lambda report: report["status"] == "ok", 20)
    yield running_server
    running_server.until(lambda report: report["live_rows"] == 0 and report["status"] == "ok")


@pytest.fixture
def model() -> str:
    return MODEL_ID
