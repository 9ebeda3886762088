"""HEAD, which asks whether the server is ready, whatever the path."""

from __future__ import annotations

from collections.abc import Callable

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send


class HeadMiddleware:
    """Answers HEAD on every path: 200 when ready, else 503 with Retry-After; never a body."""

    def __init__(self, app: ASGIApp, ready: Callable[[], bool], retry_after: Callable[[], int]) -> None:
        self._app = app
        self._ready = ready
        self._retry_after = retry_after

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
        elif self._ready():
            await Response()(scope, receive, send)
        else:
            await Response(None, 503, {"Retry-After": str(self._retry_after())})(scope, receive, send)
