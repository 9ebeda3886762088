"""The real thing: `mashbox run` with the demo model, a process of its own on a real port."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import httpx2 as httpx
import openai
import pytest

from mashbox.catalog.resolve import resolve
from tests import tiny_models

DEMO = "smollm2-135m"
READY_S = 90.0


@dataclass(frozen=True)
class Box:
    """A running server and a client of it."""

    process: subprocess.Popen[str]
    url: str
    http: httpx.Client
    client: openai.OpenAI

    def complete(self, prompt: str, **fields: Any) -> dict[str, Any]:
        """A whole completion; greedy unless told otherwise."""
        answer = self.http.post("/v1/completions", json={"prompt": prompt} | fields)
        assert answer.status_code == 200, answer.text
        body: dict[str, Any] = answer.json()
        return body

    def health(self) -> dict[str, Any]:
        report: dict[str, Any] = self.http.get("/health").json()
        return report

    def until(self, true: Callable[[dict[str, Any]], bool], seconds: float = 20.0) -> dict[str, Any]:
        """Wait for the health report to be so."""
        deadline = time.monotonic() + seconds
        while not true(report := self.health()):
            assert time.monotonic() < deadline, report
            time.sleep(0.01)
        return report

    def idle(self) -> None:
        """Wait until nothing runs or waits."""
        self.until(lambda report: report["status"] == "ok" and not report["live_rows"] + report["waiting"])


def read_url(process: subprocess.Popen[str]) -> str:
    """The URL the ready block names."""
    assert process.stdout is not None
    for line in process.stdout:
        if found := re.search(r"URL +(http://\S+)/v1", line):
            return found[1]
    raise AssertionError(f"the server ended with {process.wait()} before it was ready")


@contextmanager
def run_box(model: str, *options: str) -> Iterator[Box]:
    """`mashbox run`, until it is ready; ended by SIGTERM with exit code 0 unless it is gone already.

    One thread unless told otherwise: threads that wait for each other crawl on a busy machine.
    """
    flags = ["--port", "0", "--log-level", "warning", "--threads", "1", *options]
    command = [sys.executable, "-m", "mashbox", "run", model, *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            url = read_url(process)
            with (
                httpx.Client(base_url=url, timeout=60) as http,
                openai.OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0) as client,
            ):
                yield Box(process, url, http, client)
            if process.poll() is None:
                process.terminate()
                assert process.wait(20) == 0
        finally:
            if process.poll() is None:
                process.kill()


@pytest.fixture(scope="session")
def demo_file() -> Path:
    """The demo model's file, downloaded once into the cache."""
    return resolve(DEMO).paths[0]


@pytest.fixture(scope="session")
def shared_box(demo_file: Path) -> Iterator[Box]:
    with run_box(DEMO, "--ctx", "2048", "--slots", "8") as box:
        yield box


@pytest.fixture
def box(shared_box: Box) -> Iterator[Box]:
    """The shared server, idle before and after."""
    shared_box.idle()
    yield shared_box
    shared_box.idle()


def is_running(pid: int) -> bool:
    """Whether a process exists and is not a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def until_gone(pid: int, seconds: float = 5.0) -> None:
    """Wait for a process to end."""
    deadline = time.monotonic() + seconds
    while is_running(pid):
        assert time.monotonic() < deadline, f"process {pid} still runs"
        time.sleep(0.02)


def kill(pid: int) -> None:
    """End a process without asking."""
    os.kill(pid, signal.SIGKILL)


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The file of a tiny model with random weights, by its kind; made when first asked for."""
    folder = tmp_path_factory.mktemp("tiny")
    return cache(lambda kind: tiny_models.write(kind, folder))
