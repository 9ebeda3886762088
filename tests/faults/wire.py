"""A small HTTP client that sees every byte and can go away at any of them."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Reply:
    """What has come back so far on one connection that is closed after the answer."""

    raw: bytearray = field(default_factory=bytearray)

    @property
    def _parts(self) -> tuple[bytes, bytes]:
        head, _, rest = bytes(self.raw).partition(b"\r\n\r\n")
        return head, rest

    @property
    def status(self) -> int:
        """0 when nothing came."""
        return int(self.raw[9:12] or 0)

    @property
    def headers(self) -> dict[str, str]:
        """Names in lower case."""
        lines = self._parts[0].decode("latin-1").split("\r\n")[1:]
        pairs = (line.partition(":") for line in lines)
        return {name.lower(): value.strip() for name, _, value in pairs}

    @property
    def body(self) -> bytes:
        """The whole body. Raises AssertionError when it is not complete, or more than one."""
        rest = self._parts[1]
        if "content-length" in self.headers:
            assert len(rest) == int(self.headers["content-length"]), (
                f"a body that is cut: {bytes(self.raw)!r}"
            )
            return rest
        assert self.headers.get("transfer-encoding") == "chunked", bytes(self.raw)
        body = bytearray()
        while True:
            size, found, rest = rest.partition(b"\r\n")
            assert found, f"a stream without an end: {bytes(self.raw)!r}"
            length = int(size, 16)
            body += rest[:length]
            assert rest[length : length + 2] == b"\r\n", f"a stream that is cut: {bytes(self.raw)!r}"
            rest = rest[length + 2 :]
            if not length:
                assert rest == b"", f"bytes after the stream's end: {rest!r}"
                return bytes(body)

    def json(self) -> dict[str, Any]:
        """The body as an object."""
        value: dict[str, Any] = json.loads(self.body)
        return value


def request_bytes(route: str, body: dict[str, Any], key: str | None = None) -> bytes:
    """A POST as it goes over the wire."""
    content = json.dumps(body).encode()
    head = [
        f"POST {route} HTTP/1.1",
        "Host: localhost",
        "Content-Type: application/json",
        f"Content-Length: {len(content)}",
        "Connection: close",
        *([f"Authorization: Bearer {key}"] if key else []),
    ]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + content


@dataclass(frozen=True)
class Leave:
    """When a client goes away: after so much of its request, after seconds, or after bytes of the answer."""

    part: float | None = None
    seconds: float | None = None
    received: int | None = None


async def exchange(
    port: int,
    sent: bytes,
    leave: Leave | None = None,
    on_bytes: Callable[[Reply], None] = lambda reply: None,
) -> Reply:
    """Send a request and read until the server closes, or `leave` says so: the connection is reset then."""
    reply = Reply()
    leave = leave or Leave()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        if leave.part is not None:
            writer.write(sent[: int(len(sent) * leave.part)])
            await writer.drain()
            await asyncio.sleep(leave.seconds or 0)
            return reply
        writer.write(sent)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(leave.seconds):
                while leave.received is None or len(reply.raw) < leave.received:
                    if not (data := await reader.read(65536)):
                        break
                    reply.raw += data
                    on_bytes(reply)
        return reply
    finally:
        writer.transport.abort()
