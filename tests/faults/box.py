"""A server under test, and what it says of itself."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx2 as httpx
import msgspec

from tests.faults.process import Footprint
from tests.faults.serve import Setup

Report = dict[str, Any]


@dataclass(frozen=True)
class Box:
    """A running server."""

    process: subprocess.Popen[str]
    port: int
    key: str | None = None

    def _get(self, path: str) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        return httpx.get(f"http://127.0.0.1:{self.port}{path}", headers=headers, timeout=20)

    def health(self) -> Report:
        report: Report = self._get("/health").json()
        return report

    def until(self, true: Callable[[Report], bool], seconds: float = 20.0) -> Report:
        """Wait for the health report to be so."""
        deadline = time.monotonic() + seconds
        while not true(report := self.health()):
            assert time.monotonic() < deadline, report
            time.sleep(0.01)
        return report

    async def soon(self, true: Callable[[Report], bool], seconds: float = 20.0) -> Report:
        """The same beside other tasks."""
        return await asyncio.to_thread(self.until, true, seconds)

    def idle(self, seconds: float = 20.0) -> Report:
        """Wait until it is ready, and nothing runs or waits."""
        return self.until(
            lambda report: report["status"] == "ok" and not report["live_rows"] + report["waiting"], seconds
        )

    def metric(self, name: str, **labels: str) -> int:
        """One value of /metrics."""
        wanted = "".join(f'(?=[^}}]*{label}="{value}")' for label, value in labels.items())
        found = re.search(
            rf"^mashbox:{name}{{{wanted}[^}}]*}} (\S+)$", self._get("/metrics").text, re.MULTILINE
        )
        assert found is not None, name
        return int(float(found[1]))

    def ended(self) -> dict[str, int]:
        """Requests by how they ended."""
        reasons = ("stop", "length", "abort", "error")
        return {name: self.metric("request_success_total", finished_reason=name) for name in reasons}

    def tasks(self) -> int:
        """Tasks of its loop; only of servers that `run_scripted` has started."""
        assert self.process.stdout is not None
        self.process.send_signal(signal.SIGUSR1)
        return int(self.process.stdout.readline())

    def footprint(self, since: Footprint | None = None) -> Footprint:
        """What the server's process has; with `since` it must be no more than then, within 5 s."""
        deadline = time.monotonic() + 5
        while True:
            now = Footprint.of(self.process.pid)
            if since is None or not (grown := now.grown(since)):
                return now
            assert time.monotonic() < deadline, f"it has {grown} more than at the start"
            time.sleep(0.05)


@contextmanager
def run(setup: Setup, key: str | None = None) -> Iterator[Box]:
    """A server, until it is ready; ended by SIGTERM with exit code 0 unless it has ended already."""
    listener = socket.create_server(("127.0.0.1", 0))
    settings = msgspec.json.encode(setup).decode()
    command = [sys.executable, "-m", "tests.faults.serve", str(listener.fileno()), settings]
    with subprocess.Popen(
        command, pass_fds=[listener.fileno()], stdout=subprocess.PIPE, text=True
    ) as process:
        port = listener.getsockname()[1]
        listener.close()
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield Box(process, port, key)
            if process.poll() is None:
                process.terminate()
                assert process.wait(20) == 0
        finally:
            process.kill()


def told(name: str, figures: dict[str, Any]) -> None:
    """Show what was measured; pytest keeps it to itself but in the long form."""
    print(f"\n{name}: {json.dumps(figures)}")
