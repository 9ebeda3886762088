"""A server process under test: start, wait until it serves, measure its CPU time, end it by pid."""

from __future__ import annotations

import http.client
import os
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.errors import BenchError
from bench.procfs import tree_cpu_seconds

HOST = "127.0.0.1"
READY_S = 180.0
STOP_S = 15.0


@dataclass(frozen=True, slots=True)
class Launch:
    """How to start one side. `log` receives all its output.

    `must_reuse`: whether computing again what it has computed already is an error, and not only slow.
    """

    name: str
    command: Sequence[str]
    port: int
    log: Path
    env: Mapping[str, str]
    must_reuse: bool = False


class Server:
    """A running server. Use as a context manager: leaving ends the process."""

    def __init__(self, launch: Launch) -> None:
        self.name = launch.name
        self.port = launch.port
        self._log = launch.log
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                launch.command, stdout=log, stderr=subprocess.STDOUT, env={**os.environ, **launch.env}
            )

    def __enter__(self) -> Server:
        try:
            self._wait_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Ask the process to end, and insist after 15 s."""
        self._process.terminate()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def cpu_seconds(self) -> float:
        """CPU time so far of the process and its living descendants."""
        return tree_cpu_seconds(self._process.pid)

    def _wait_ready(self) -> None:
        deadline = time.monotonic() + READY_S
        while not is_ready(self.port):
            if self._process.poll() is not None:
                raise BenchError(f"{self.name} ended while it started; it said:\n{self._tail()}")
            if time.monotonic() > deadline:
                raise BenchError(f"{self.name} was not ready after {READY_S:.0f} s:\n{self._tail()}")
            time.sleep(0.1)

    def _tail(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-20:])


def is_ready(port: int) -> bool:
    """Whether GET /health answers 200."""
    connection = http.client.HTTPConnection(HOST, port, timeout=5)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def free_port() -> int:
    """A TCP port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])
