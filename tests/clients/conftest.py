"""One server with a scripted model for all tests here; each test has its own proxy, desk and script."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from mashbox import machine
from mashbox.catalog.resolve import resolve
from tests.clients.agents import MODEL_ID, Desk
from tests.clients.proxy import Proxy
from tests.model_script import Rule, Script

CONTEXT = 65_536
READY_S = 30.0


@dataclass(frozen=True)
class Box:
    """A server whose model says what `script` says."""

    process: subprocess.Popen[bytes]
    port: int
    script: Script
    vocabulary: Path

    def play(self, *rules: Rule) -> None:
        """What the model says from now on."""
        self.script.write(self.vocabulary, rules)

    def until_ready(self) -> None:
        """Wait for the model to be loaded and idle."""
        deadline = time.monotonic() + READY_S
        while not _is_idle(self.port):
            assert self.process.poll() is None, "the server has ended"
            assert time.monotonic() < deadline, "the server is not ready"
            time.sleep(0.05)


def _is_idle(port: int) -> bool:
    try:
        report: dict[str, Any] = httpx.get(f"http://127.0.0.1:{port}/health").json()
    except httpx.ConnectError:
        return False
    return (report["status"], report["live_rows"], report["waiting"]) == ("ok", 0, 0)


@contextmanager
def run_scripted(folder: Path, vocabulary: Path, context: int) -> Iterator[Box]:
    """A server process with a scripted model; ended by SIGTERM, which must work."""
    script = Script(folder / "script.json")
    script.write(vocabulary, [])
    listener = machine.bind("127.0.0.1", 0)
    options = [str(listener.fileno()), str(script.path), MODEL_ID, str(context)]
    command = [sys.executable, "-m", "tests.clients.serve", *options]
    with listener, subprocess.Popen(command, pass_fds=[listener.fileno()]) as process:
        box = Box(process, listener.getsockname()[1], script, vocabulary)
        try:
            box.until_ready()
            yield box
            process.terminate()
            assert process.wait(20) == 0
        finally:
            if process.poll() is None:
                process.kill()


@pytest.fixture(scope="session")
def vocabulary() -> Path:
    """The demo model's file, downloaded once into the cache."""
    return resolve("smollm2-135m").paths[0]


@pytest.fixture(scope="session")
def shared_box(vocabulary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    with run_scripted(tmp_path_factory.mktemp("box"), vocabulary, CONTEXT) as box:
        yield box


@pytest.fixture
def box(shared_box: Box) -> Iterator[Box]:
    """The shared server, ready and idle before and after."""
    shared_box.until_ready()
    yield shared_box
    shared_box.until_ready()


@pytest.fixture
def proxy(box: Box) -> Iterator[Proxy]:
    """In front of the shared server; every stream that went through must be in order."""
    with Proxy(box.port).running() as running:
        yield running
    for exchange in running.exchanges:
        exchange.check()


def make_desk(folder: Path, url: str) -> Desk:
    """An empty home and an empty folder."""
    desk = Desk(folder / "home", folder / "work", url)
    desk.home.mkdir()
    desk.folder.mkdir()
    return desk


@pytest.fixture
def desk(tmp_path: Path, proxy: Proxy) -> Desk:
    return make_desk(tmp_path, proxy.url)
