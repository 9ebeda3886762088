"""One client's connection: how much it may send, how slowly, and how slowly it may read."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, ClassVar, cast
from urllib.parse import unquote

import httptools
from starlette.types import Scope
from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from mashbox.errors import (
    HeadersTooLargeError,
    InvalidRequestError,
    OverloadedError,
    RequestError,
    RequestTimeoutError,
    UriTooLongError,
)
from mashbox.http.refusal import put_refusal
from mashbox.http.transport import WatchedTransport

MAX_PATH_BYTES = 8 * 1024
"""Path and query together."""
MAX_HEADER_BYTES = 64 * 1024
MAX_HEADERS = 200
MAX_PIPELINED = 16
"""Requests that may wait behind the running one on the same connection."""


@dataclass(frozen=True, slots=True)
class WireLimits:
    """Seconds: until a client that takes no byte is left, until one that sends no head or no more of
    its body is, and how long one that sends what nobody reads may go on with it. And the bytes a second
    that a body must have on average, once `silent_s` have passed."""

    stalled_s: float = 30.0
    silent_s: float = 30.0
    linger_s: float = 30.0
    body_pace: int = 16 * 1024


DEFAULT_WIRE_LIMITS = WireLimits()


class GuardedProtocol(HttpToolsProtocol):
    """uvicorn's protocol with limits. What it refuses is answered by the application like all else.

    A request that is refused is the last one of its connection: what comes after it is not read.
    """

    limits: ClassVar[WireLimits] = DEFAULT_WIRE_LIMITS

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._running: RequestResponseCycle | None = None
        self._in_head = False
        self._in_body = False
        self._deaf = False
        self._draining = False
        self._stays_open = False
        self._steps = 0  # parts of requests that are complete: heads, pieces of bodies, ends
        self._barren = 0  # bytes since the last of them
        self._header_bytes = 0
        self._fault: RequestError | None = None
        self._deadline = 0.0
        self._body_due = 0.0  # when a body that brings no more bytes has become too slow
        self._pace: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Watch the transport, and a client that never sends a byte."""
        watched = WatchedTransport(
            transport,
            self.loop,
            stalled_s=self.limits.stalled_s,
            linger_s=self.limits.linger_s,
            unread=self._may_be_sending,
        )
        super().connection_made(watched)
        self.timeout_keep_alive_task = self.loop.call_later(
            self.timeout_keep_alive, self.timeout_keep_alive_handler
        )

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the running request, too, when others waited behind it."""
        self._stop_pace()
        if isinstance(self.transport, WatchedTransport):
            self.transport.lost()
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        self.pipeline.clear()
        if self._running is not None and not self._running.response_complete:
            self._running.disconnected = True
            self._running.message_event.set()

    def data_received(self, data: bytes) -> None:
        """Parse; refuse what is no HTTP or too much of it."""
        if self._deaf or self.transport.is_closing():
            return
        self._unset_keepalive_if_required()
        before = self._steps
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # The parser is of no more use; the request itself is answered as if it wanted nothing.
            self._deaf = True
            self.cycle.keep_alive = False
            self._stop_pace()
            return
        except httptools.HttpParserError:
            self._refuse(self._fault or InvalidRequestError("The request is not valid HTTP/1.1."))
            return
        stepped = self._steps != before
        self._barren = 0 if stepped else self._barren + len(data)
        if self._barren > MAX_PATH_BYTES + MAX_HEADER_BYTES:
            self._refuse(_headers_too_large())
            return
        self._keep_pace(stepped)

    def shutdown(self) -> None:
        """The running request is the last one."""
        self._draining = True
        super().shutdown()

    # Parser callbacks

    def on_message_begin(self) -> None:
        """A request line begins."""
        super().on_message_begin()
        self._in_head = True
        self._header_bytes = 0

    def on_url(self, url: bytes) -> None:
        """Path and query, or a piece of them."""
        super().on_url(url)
        if len(self.url) > MAX_PATH_BYTES:
            self._stop(UriTooLongError(f"The path is longer than {MAX_PATH_BYTES // 1024} KiB."))

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header. Those behind a body count, but they are no part of the request."""
        self._header_bytes += len(name) + len(value) + len(b": \r\n")
        if self._header_bytes > MAX_HEADER_BYTES or len(self.headers) >= MAX_HEADERS:
            self._stop(_headers_too_large())
        if not self._in_body:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The application starts. Until the body is there, its answer ends the connection."""
        if len(self.pipeline) >= MAX_PIPELINED:
            self._stop(
                OverloadedError(f"More than {MAX_PIPELINED} requests wait on this connection.", retry_after=1)
            )
        super().on_headers_complete()
        self._steps += 1
        self._in_head, self._in_body = False, True
        self._stays_open = self.cycle.keep_alive
        self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        self._steps += 1
        self._body_due += len(body) / self.limits.body_pace
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The whole request is there."""
        self._steps += 1
        self._in_body = False
        super().on_message_complete()
        if not self.cycle.response_started:
            self.cycle.keep_alive = self._stays_open and not self._draining

    def _stop(self, error: RequestError) -> None:
        self._fault = error
        raise error

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        self._body_due = self.loop.time() + self.limits.silent_s
        super()._start_asgi_task(cycle, app)

    def _may_be_sending(self) -> bool:
        return self._in_head or self._in_body or self._deaf or bool(self.pipeline)

    # Pace

    def _keep_pace(self, stepped: bool) -> None:
        """Start, move or stop the clock that runs while a request is not whole."""
        if stepped and not self._in_head and not self._in_body:
            self._stop_pace()
            return
        if stepped or self._pace is None:
            self._deadline = self.loop.time() + self.limits.silent_s
        if self._pace is None:
            self._pace = self.loop.call_at(self._due(), self._check_pace)

    def _due(self) -> float:
        """Until when more must have come. The body of a request in line is not hurried."""
        hurried = self._in_body and self.cycle is self._running
        return min(self._deadline, self._body_due) if hurried else self._deadline

    def _check_pace(self) -> None:
        self._pace = None
        now = self.loop.time()
        if self.flow.read_paused:  # it is we who do not read
            self._deadline = now + self.limits.silent_s
            self._body_due = max(self._body_due, self._deadline)
        if now < self._due():
            self._pace = self.loop.call_at(self._due(), self._check_pace)
        else:
            self._refuse(self._too_slow(now))

    def _too_slow(self, now: float) -> RequestTimeoutError:
        part = "body" if self._in_body else "head"
        if now < self._deadline:
            return RequestTimeoutError(
                f"The request's {part} came slower than {self.limits.body_pace // 1024} KiB a second."
            )
        return RequestTimeoutError(f"The request's {part} did not come within {self.limits.silent_s:g} s.")

    def _stop_pace(self) -> None:
        if self._pace is not None:
            self._pace.cancel()
            self._pace = None

    # Refusal

    def _refuse(self, error: RequestError) -> None:
        """Answer the request that is being read with `error`, in its turn, and read nothing more."""
        self._deaf = True
        self._stop_pace()
        if self.transport.is_closing():
            return
        if not self._in_body:
            self._answer_apart(error)
            return
        put_refusal(cast(Scope, self.cycle.scope), error)
        self.cycle.more_body = False
        self.cycle.message_event.set()

    def _answer_apart(self, error: RequestError) -> None:
        """Let the application answer a request whose head is not whole."""
        if not self._in_head:
            super().on_message_begin()
        path = unquote(self.url[:MAX_PATH_BYTES].partition(b"?")[0].decode("ascii", "replace"))
        method = self.parser.get_method().decode("ascii") if self.url else ""
        scope = cast(Scope, self.scope)
        scope.update(method=method, path=path, raw_path=self.url, query_string=b"")
        put_refusal(scope, error)
        before = self.cycle
        self.cycle = RequestResponseCycle(
            scope=self.scope,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=self.access_log,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=False,
            keep_alive=False,
            on_response=self.on_response_complete,
        )
        self.cycle.more_body = False
        if before is None or before.response_complete:
            self._start_asgi_task(self.cycle, self.app)
        else:
            self.pipeline.appendleft((self.cycle, self.app))


def guarded(limits: WireLimits) -> type[GuardedProtocol]:
    """The protocol with other limits, as uvicorn wants it: a class."""
    return type("LimitedProtocol", (GuardedProtocol,), {"limits": limits})


def _headers_too_large() -> HeadersTooLargeError:
    return HeadersTooLargeError(
        f"The headers are larger than {MAX_HEADER_BYTES // 1024} KiB, or more than {MAX_HEADERS}."
    )
