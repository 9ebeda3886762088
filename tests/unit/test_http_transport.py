"""http/transport.py on real sockets: who is left, and what watching costs."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import time

import pytest
import uvloop

from mashbox.http.transport import WatchedTransport


class Connection(asyncio.Protocol):
    """The server's end of a connection."""

    def __init__(self, stalled_s: float, unread: bool) -> None:
        self._options = {"stalled_s": stalled_s, "linger_s": 0.2}
        self._unread = unread
        self.received = 0
        self.lost = asyncio.Event()
        self.watched: WatchedTransport

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        loop = asyncio.get_running_loop()
        self.watched = WatchedTransport(transport, loop, **self._options, unread=lambda: self._unread)

    def data_received(self, data: bytes) -> None:
        self.received += len(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.watched.lost()
        self.lost.set()


@contextlib.asynccontextmanager
async def connected(unix: bool = False, stalled_s: float = 0.3, unread: bool = False):  # type: ignore[no-untyped-def]
    """A client's socket that reads little by itself, and our end."""
    if unix:
        ours, client = socket.socketpair()
    else:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            client = socket.socket()
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect(listener.getsockname())
            ours = listener.accept()[0]
    client.setblocking(False)
    connection = Connection(stalled_s, unread)
    await asyncio.get_running_loop().connect_accepted_socket(lambda: connection, ours)
    with client:
        yield client, connection


def run(main) -> None:  # type: ignore[no-untyped-def]
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(main(), 10))


@pytest.mark.parametrize("close", [False, True])
def test_the_kernel_drops_what_such_a_client_has_not_taken(close: bool) -> None:
    async def main() -> None:
        async with connected() as (client, connection):
            connection.watched.write(b"x" * 8_000_000)
            if close:
                connection.watched.close()
            await connection.lost.wait()
            await asyncio.sleep(0.1)
            assert client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == errno.ECONNRESET

    run(main)


@pytest.mark.parametrize("unix", [False, True])
@pytest.mark.parametrize("close", [False, True])
def test_a_client_that_takes_nothing_is_left(
    unix: bool, close: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with connected(unix) as (_, connection):
            begun = time.monotonic()
            connection.watched.write(b"x" * 8_000_000)
            if close:
                connection.watched.close()
            await connection.lost.wait()
            assert 0.25 < time.monotonic() - begun < 1

    with caplog.at_level(logging.INFO):
        run(main)
    (record,) = caplog.records
    assert "took nothing" in record.getMessage()


def test_what_the_kernel_holds_counts() -> None:
    async def main() -> None:
        async with connected() as (_, connection):
            connection.watched.write(b"x" * 30_000)  # more than the client's buffer, less than ours
            await asyncio.sleep(0.1)
            assert connection.watched._transport.get_write_buffer_size() == 0
            await asyncio.wait_for(connection.lost.wait(), 1)

    run(main)


def test_a_client_that_takes_everything_stays_and_costs_no_timer() -> None:
    async def main() -> None:
        async with connected() as (client, connection):
            loop = asyncio.get_running_loop()
            for _ in range(3):
                connection.watched.write(b"x" * 1000)
                received = 0
                while received < 1000:
                    received += len(await loop.sock_recv(client, 1000))
                await asyncio.sleep(0.4)
                assert connection.watched._look is None
            assert not connection.lost.is_set()

    run(main)


def test_what_is_still_sent_is_read_before_closing() -> None:
    async def main() -> None:
        async with connected(unread=True) as (client, connection):
            loop = asyncio.get_running_loop()
            connection.watched.write(b"no")
            connection.watched.close()
            assert connection.watched.is_closing()
            await loop.sock_sendall(client, b"x" * 1_000_000)
            assert await loop.sock_recv(client, 100) == b"no"
            assert await loop.sock_recv(client, 100) == b""
            await asyncio.wait_for(connection.lost.wait(), 1)
            assert connection.received == 1_000_000

    run(main)


def test_watching_costs_a_token_next_to_nothing() -> None:
    class Nowhere(asyncio.Transport):
        def write(self, data: bytes | bytearray | memoryview) -> None:
            pass

        def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
            pass

        def get_write_buffer_size(self) -> int:
            return 0

    async def main() -> None:
        plain, loop = Nowhere(), asyncio.get_running_loop()
        watched = WatchedTransport(plain, loop, stalled_s=30, linger_s=1, unread=lambda: False)

        def seconds(transport: asyncio.Transport) -> float:
            begun = time.perf_counter()
            for _ in range(20_000):
                transport.write(b"data")
            return time.perf_counter() - begun

        extra = min(seconds(watched) for _ in range(5)) - min(seconds(plain) for _ in range(5))
        assert extra / 20_000 < 1e-6
        watched.lost()

    run(main)
