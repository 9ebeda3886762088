"""The last hop of every generating route: an answer, streamed or whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from mashbox.chat.service import Answer
from mashbox.chat.types import ChatEvent, WholeAnswer
from mashbox.http.connection import while_connected
from mashbox.http.json import json_response
from mashbox.http.sse import EventStreamResponse, Renderer, StreamLimits


def stream_reply(
    answer: Answer, renderer: Renderer[ChatEvent], limits: StreamLimits
) -> EventStreamResponse[ChatEvent]:
    """The answer as events, as they come."""
    return EventStreamResponse(answer, renderer, answer.close, limits)


async def whole_reply(request: Request, answer: Answer, render: Callable[[WholeAnswer], Any]) -> Response:
    """The answer in one piece. Raises EngineError, or ClientGoneError when nobody waits any more."""
    try:
        whole = await while_connected(request.receive, answer.whole())
    finally:
        answer.close()
    return json_response(render(whole))
