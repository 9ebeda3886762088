"""http/sse.py: what is sent, when, and that the answer is closed however a stream ends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

from mashbox.errors import EngineError, RequestError
from mashbox.http.sse import EventStreamResponse, StreamLimits


class Upper:
    """Renders strings in capitals; hides the empty one."""

    def start(self) -> bytes:
        return b"start"

    def event(self, event: str) -> bytes:
        return event.upper().encode()

    def failed(self, error: RequestError) -> bytes:
        return str(error).encode()

    def keep_alive(self) -> bytes:
        return b"ping"


class Client:
    """An ASGI server's two callables, as one client sees them."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.gone = asyncio.Event()
        self.reading = asyncio.Event()
        self.reading.set()
        self.closed = 0

    async def receive(self) -> dict[str, Any]:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        await self.reading.wait()
        self.sent.append(message)

    def close(self) -> None:
        self.closed += 1

    @property
    def bodies(self) -> list[bytes]:
        return [message["body"] for message in self.sent[1:]]

    async def run(self, events: AsyncIterator[str], **limits: float) -> None:
        response = EventStreamResponse(events, Upper(), self.close, StreamLimits(**limits))
        await response({"type": "http"}, self.receive, self.send)


def run(test: Callable[[Client], Coroutine[Any, Any, None]]) -> Client:
    async def main() -> Client:
        client = Client()
        async with asyncio.timeout(5):
            await test(client)
        return client

    return asyncio.run(main())


async def abc() -> AsyncIterator[str]:
    for event in ("a", "", "c"):
        yield event


async def forever(first: str = "a") -> AsyncIterator[str]:
    yield first
    await asyncio.Event().wait()


def test_a_whole_stream() -> None:
    client = run(lambda client: client.run(abc()))
    assert client.sent[0]["status"] == 200
    assert dict(client.sent[0]["headers"]) == {
        b"content-type": b"text/event-stream; charset=utf-8",
        b"cache-control": b"no-cache",
        b"x-accel-buffering": b"no",
    }
    assert client.bodies == [b"start", b"A", b"C", b""]
    assert [message.get("more_body", False) for message in client.sent[1:]] == [True, True, True, False]
    assert client.closed == 1


@pytest.mark.parametrize("error", [EngineError("worker died"), KeyError("bug")])
def test_a_failure_is_told_and_the_stream_is_complete(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    async def failing() -> AsyncIterator[str]:
        yield "a"
        raise error

    with caplog.at_level(logging.ERROR):
        client = run(lambda client: client.run(failing()))
    told = str(error).encode() if isinstance(error, RequestError) else b"internal error"
    assert told in client.bodies[2]
    assert client.bodies[3] == b""
    assert bool(caplog.records) is not isinstance(error, RequestError)
    assert client.closed == 1


def test_a_client_that_leaves_ends_the_answer() -> None:
    async def leave(client: Client) -> None:
        asyncio.get_running_loop().call_later(0.01, client.gone.set)
        await client.run(forever())

    client = run(leave)
    assert client.bodies == [b"start", b"A"]
    assert client.closed == 1


def test_a_quiet_stream_is_kept_alive() -> None:
    async def quiet() -> AsyncIterator[str]:
        yield "a"
        await asyncio.sleep(0.13)
        yield "b"

    client = run(lambda client: client.run(quiet(), keep_alive_s=0.05))
    assert client.bodies == [b"start", b"A", b"ping", b"ping", b"B", b""]


def test_a_busy_stream_needs_no_keep_alive() -> None:
    async def busy() -> AsyncIterator[str]:
        for _ in range(20):
            await asyncio.sleep(0.01)
            yield "a"

    client = run(lambda client: client.run(busy(), keep_alive_s=0.1))
    assert b"ping" not in client.bodies


@pytest.mark.parametrize("stalls_at", ["token", "keep-alive", "end"])
def test_nothing_is_added_to_a_send_that_is_held_up(stalls_at: str) -> None:
    async def two(client: Client) -> AsyncIterator[str]:
        yield "a"
        client.reading.clear()
        if stalls_at == "token":
            yield "b"
        if stalls_at != "end":
            await asyncio.Event().wait()

    async def leave(client: Client) -> None:
        def left() -> None:
            client.gone.set()
            client.reading.set()  # as the server does it: sends to a client that is gone return

        asyncio.get_running_loop().call_later(0.15, left)
        await client.run(two(client), keep_alive_s=0.02)

    client = run(leave)
    expected = {"token": b"B", "keep-alive": b"ping", "end": b""}
    assert client.bodies in ([b"start", b"A", expected[stalls_at]], [b"start", b"A"])
    assert client.closed == 1


def test_nothing_is_sent_after_the_end() -> None:
    async def pause(client: Client) -> None:
        async def one() -> AsyncIterator[str]:
            yield "a"
            client.reading.clear()
            asyncio.get_running_loop().call_later(0.1, client.reading.set)

        await client.run(one(), keep_alive_s=0.02)

    assert run(pause).bodies == [b"start", b"A", b""]


def test_cancelling_the_response_ends_the_answer() -> None:
    async def cancel(client: Client) -> None:
        task = asyncio.create_task(client.run(forever()))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    assert run(cancel).closed == 1
