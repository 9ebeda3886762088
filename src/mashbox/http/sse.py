"""Server-sent events: one response class for every protocol's stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from starlette.types import Message, Receive, Scope, Send

from mashbox.errors import RequestError
from mashbox.http.connection import cancel, until_disconnect
from mashbox.http.errors import as_request_error, error_name
from mashbox.http.record import KEY, note_error

E = TypeVar("E")
E_contra = TypeVar("E_contra", contravariant=True)

COMMENT = b": keep-alive\n\n"
DONE = b"data: [DONE]\n\n"
_HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
)


class Renderer(Protocol[E_contra]):
    """One protocol's stream: each call gives the bytes to send now, perhaps none."""

    def start(self) -> bytes:
        """What comes before the first event."""
        ...

    def event(self, event: E_contra) -> bytes:
        """One event of the answer. Called for every token: no needless work here."""
        ...

    def failed(self, error: RequestError) -> bytes:
        """The end of a stream that fails after its status line."""
        ...

    def keep_alive(self) -> bytes:
        """A sign of life that changes nothing."""
        ...


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """Seconds without a byte until a keep-alive."""

    keep_alive_s: float = 10.0


DEFAULT_LIMITS = StreamLimits()


class EventStreamResponse(Generic[E]):
    """Sends 200, then an event stream. `close` is called once, however the stream ends.

    Two tasks per response and none per event: one pumps, one waits for the client to leave.
    """

    def __init__(
        self,
        events: AsyncIterator[E],
        renderer: Renderer[E],
        close: Callable[[], None],
        limits: StreamLimits,
    ) -> None:
        self._events = events
        self._renderer = renderer
        self._close = close
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._last_send = self._loop.time()
        self._sending = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        pump = asyncio.create_task(self._pump(scope, send))
        leaving = asyncio.create_task(until_disconnect(receive))
        try:
            await self._watch(send, pump, leaving)
        finally:
            pump.cancel()
            self._close()
            await cancel(pump, leaving)

    async def _pump(self, scope: Scope, send: Send) -> None:
        render = self._renderer.event
        # A list of its own: middleware may add headers to it.
        await self._send(send, {"type": "http.response.start", "status": 200, "headers": list(_HEADERS)})
        await self._write(send, self._renderer.start())
        try:
            async for event in self._events:
                if chunk := render(event):
                    await self._write(send, chunk)
        except Exception as error:
            failure = as_request_error(error, scope.get(KEY))
            note_error(scope, error_name(failure))
            await self._write(send, self._renderer.failed(failure))
        await self._send(send, {"type": "http.response.body", "body": b""})

    async def _write(self, send: Send, chunk: bytes) -> None:
        await self._send(send, {"type": "http.response.body", "body": chunk, "more_body": True})

    async def _send(self, send: Send, message: Message) -> None:
        self._sending += 1
        await send(message)
        self._sending -= 1
        self._last_send = self._loop.time()

    async def _watch(self, send: Send, pump: asyncio.Task[None], leaving: asyncio.Task[None]) -> None:
        """Return when the stream is complete or the client gone; keep a quiet stream alive till then."""
        while True:
            quiet = 0.0 if self._sending else self._loop.time() - self._last_send
            if quiet < self._limits.keep_alive_s:
                await asyncio.wait(
                    (pump, leaving),
                    timeout=self._limits.keep_alive_s - quiet,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if pump.done():
                    return pump.result()
                if leaving.done():
                    return None
            else:
                await self._write(send, self._renderer.keep_alive())


def data(payload: bytes) -> bytes:
    """One unnamed event with a one-line payload."""
    return b"data: " + payload + b"\n\n"


def named_event(name: bytes, payload: bytes) -> bytes:
    """One event with a name and a one-line payload."""
    return b"event: " + name + b"\ndata: " + payload + b"\n\n"
