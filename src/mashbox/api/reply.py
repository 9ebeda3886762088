"""The last hop of every generating route: an answer, streamed or whole, and what the log is told of it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from mashbox.api.request_counts import FINISHED
from mashbox.chat.service import Answer
from mashbox.chat.types import ChatEvent, Done, WholeAnswer
from mashbox.http.connection import while_connected
from mashbox.http.json import json_response
from mashbox.http.record import Outcome, record_of
from mashbox.http.sse import EventStreamResponse, Renderer, StreamLimits
from mashbox.logs.entry import Entry

log = logging.getLogger(__name__)


def stream_reply(
    request: Request, answer: Answer, answer_id: str, renderer: Renderer[ChatEvent], limits: StreamLimits
) -> EventStreamResponse[ChatEvent]:
    """The answer as events, as they come."""
    return EventStreamResponse(answer, renderer, partial(_end, request, answer, answer_id), limits)


async def whole_reply(
    request: Request, answer: Answer, answer_id: str, render: Callable[[WholeAnswer], Any]
) -> Response:
    """The answer in one piece. Raises EngineError, or ClientGoneError when nobody waits any more."""
    try:
        whole = await while_connected(request.receive, answer.whole())
    finally:
        _end(request, answer, answer_id)
    return json_response(render(whole))


def _end(request: Request, answer: Answer, answer_id: str) -> None:
    """The answer is complete, or given up."""
    answer.close()
    record_of(request).outcome = outcome_of(answer, answer_id)
    if answer.progress.texts is not None:
        text = "".join(answer.progress.texts)
        fields = {"request_id": record_of(request).id, "answer_id": answer_id, "text": text}
        log.info(Entry("answer", f"answer {answer_id}\n{text}", fields))


def outcome_of(answer: Answer, answer_id: str) -> Outcome:
    """How far an answer came."""
    progress = answer.progress
    outcome = Outcome(
        answer_id,
        answer.prompt_tokens,
        progress.cached_tokens,
        queue_s=progress.started_s,
        first_token_s=progress.first_text_s,
    )
    if progress.done is None:
        outcome.pieces = progress.pieces
    else:
        _complete(outcome, progress.done)
    return outcome


def _complete(outcome: Outcome, done: Done) -> None:
    usage = done.usage
    outcome.completion_tokens = usage.completion_tokens
    if usage.completion_tokens > 1 and usage.predicted_ms > 0:
        outcome.tokens_per_s = (usage.completion_tokens - 1) * 1000 / usage.predicted_ms
    outcome.finish = "tool_calls" if done.calls else FINISHED[done.reason]
