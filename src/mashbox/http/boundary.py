"""The outermost middleware: where a request begins and ends, whatever happens in between."""

from __future__ import annotations

import time
from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mashbox.errors import InternalError
from mashbox.http import anthropic_errors
from mashbox.http.errors import as_request_error, error_name, error_response
from mashbox.http.record import RequestRecord, open_record
from mashbox.http.refusal import raise_refusal


class BoundaryMiddleware:
    """Opens a request's record, puts its id on the answer, answers what is raised, and tells its end once."""

    def __init__(self, app: ASGIApp, on_end: Callable[[RequestRecord], None]) -> None:
        self._app = app
        self._on_end = on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        record = open_record(scope)

        async def send_numbered(message: Message) -> None:
            if message["type"] == "http.response.start":
                record.status = message["status"]
                message["headers"] = [*message["headers"], *_id_headers(record), *record.headers]
            await send(message)

        try:
            await self._answer(record, scope, receive, send_numbered)
        finally:
            record.seconds = time.monotonic() - record.begun
            self._on_end(record)

    async def _answer(self, record: RequestRecord, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            raise_refusal(scope)
            await self._app(scope, receive, send)
        except Exception as raised:
            error = as_request_error(raised, record)
            # Its frames hold the request's body, and this one holds it: a ring that would stay for long.
            error.__traceback__ = error.__context__ = None
            if record.status:
                record.error = error_name(error)
                return  # too late to tell; the server closes the connection
            response = error_response(error, record)
            if isinstance(error, InternalError):
                response.headers["Connection"] = "close"
            await response(scope, receive, send)


def _id_headers(record: RequestRecord) -> list[tuple[bytes, bytes]]:
    """The request's id, on Anthropic's paths under their name, too."""
    names = [b"x-request-id", b"request-id"]
    wanted = names if record.path.startswith(anthropic_errors.PATHS) else names[:1]
    return [(name, record.id.encode()) for name in wanted]
