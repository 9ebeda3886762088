"""Raw HTTP: bytes in, the answer's parts out."""

from __future__ import annotations

import json
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@dataclass(frozen=True)
class Answer:
    """One answer as it was read."""

    status: int
    headers: dict[str, str]
    body: bytes
    closed: bool

    @property
    def error(self) -> dict[str, Any]:
        """The error object, whose message must be there."""
        told: dict[str, Any] = json.loads(self.body)["error"]
        assert told["message"]
        return told


def post(content: bytes, *headers: bytes, head: bytes = HEAD) -> bytes:
    """A whole request."""
    return (
        head + b"".join(h + b"\r\n" for h in headers) + b"Content-Length: %d\r\n\r\n" % len(content) + content
    )


def send(port: int, *pieces: bytes, pause: float = 0.0, timeout: float = 10.0) -> list[Answer]:
    """Send the pieces, a pause between them, and read until the server closes or `timeout` passes.

    A server that closes while we send is read, too.
    """
    with socket.create_connection(("127.0.0.1", port), timeout=timeout) as client:
        try:
            for i, piece in enumerate(pieces):
                if i:
                    time.sleep(pause)
                client.sendall(piece)
        except (BrokenPipeError, ConnectionResetError):
            pass
        return list(answers(client))


def one(port: int, *pieces: bytes, pause: float = 0.0) -> Answer:
    """The only answer to those pieces."""
    (answer,) = send(port, *pieces, pause=pause)
    return answer


def answers(client: socket.socket) -> Iterator[Answer]:
    """The answers on a connection, until the server closes it."""
    received = b""
    while True:
        while b"\r\n\r\n" not in received:
            if not (more := client.recv(65536)):
                assert not received, received
                return
            received += more
        head, _, received = received.partition(b"\r\n\r\n")
        line, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (text.partition(":") for text in lines)}
        status = int(line.split()[1])
        length = int(headers.get("content-length", "0"))
        while len(received) < length:
            more = client.recv(65536)
            assert more, "cut short"
            received += more
        yield Answer(status, headers, received[:length], headers.get("connection") == "close")
        received = received[length:]


@contextmanager
def prompt_health(port: int, limit: float = 0.1) -> Iterator[None]:
    """Every answer to /health, asked for all the time, must come within `limit` seconds.

    A process of its own asks: what this one does must not delay it.
    """
    command = [sys.executable, "-m", "tests.api.wire", str(port)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as asking:
        assert asking.stdout is not None
        assert asking.stdout.readline() == "ready\n"
        try:
            yield
        finally:
            told = asking.communicate("end\n", timeout=10)[0]
    assert float(told) < limit, f"/health took {float(told) * 1000:.0f} ms"


def ask_for_health(port: int) -> float:
    """Ask until a line comes in on stdin; the longest time an answer took, in seconds."""
    times: list[float] = []
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        while not (times and select.select([sys.stdin], [], [], 0.002)[0]):
            begun = time.monotonic()
            client.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            received = b""
            while b"}" not in received:
                received += client.recv(65536)
            times.append(time.monotonic() - begun)
            if len(times) == 1:
                print("ready", flush=True)
    return max(times)


if __name__ == "__main__":
    print(ask_for_health(int(sys.argv[1])))
