"""What both OpenAI completion routes say about an answer: its head, usage and timings."""

from __future__ import annotations

import time
from dataclasses import dataclass

import msgspec

from mashbox.engine.types import FinishReason, Usage
from mashbox.errors import RequestError
from mashbox.http.errors import error_body
from mashbox.http.sse import DONE, data


@dataclass(frozen=True, slots=True)
class AnswerHead:
    """What stays the same in every chunk of an answer. `created` is Unix time."""

    id: str
    created: int
    model: str


def new_head(prefix: str, request_id: str, model: str) -> AnswerHead:
    """The head of an answer that starts now; its id is found in the engine's log."""
    return AnswerHead(prefix + request_id, int(time.time()), model)


def failed_end(error: RequestError, head: AnswerHead) -> bytes:
    """An error event, then the end of the stream."""
    return data(msgspec.json.encode(error_body(error, request_id=head.id))) + DONE


FINISH_REASONS = {
    FinishReason.STOP: "stop",
    FinishReason.STOP_STRING: "stop",
    FinishReason.LENGTH: "length",
}


class TokenUsage(msgspec.Struct):
    """Tokens of one answer."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class PromptTokensDetails(msgspec.Struct):
    """Of the prompt's tokens, those served from the prefix cache."""

    cached_tokens: int


class ChatUsage(TokenUsage):
    """Tokens of one chat answer."""

    prompt_tokens_details: PromptTokensDetails


def token_usage(usage: Usage) -> TokenUsage:
    """The engine's counts in OpenAI's words."""
    return TokenUsage(
        usage.prompt_tokens, usage.completion_tokens, usage.prompt_tokens + usage.completion_tokens
    )


def chat_usage(usage: Usage) -> ChatUsage:
    """The engine's counts in the words of the chat route."""
    counts = token_usage(usage)
    return ChatUsage(
        counts.prompt_tokens,
        counts.completion_tokens,
        counts.total_tokens,
        PromptTokensDetails(usage.cached_tokens),
    )


class ChatTimings(msgspec.Struct):
    """Where the time went: llama-server's `timings` fields. Times in milliseconds."""

    prompt_n: int
    prompt_ms: float
    prompt_per_second: float | None
    predicted_n: int
    predicted_ms: float
    predicted_per_second: float | None
    cache_n: int
    queue_ms: float


def chat_timings(usage: Usage) -> ChatTimings:
    """Speeds are null where there was no time to measure."""
    prefilled = usage.prompt_tokens - usage.cached_tokens
    return ChatTimings(
        prompt_n=prefilled,
        prompt_ms=round(usage.prompt_ms, 3),
        prompt_per_second=_per_second(prefilled, usage.prompt_ms),
        predicted_n=usage.completion_tokens,
        predicted_ms=round(usage.predicted_ms, 3),
        predicted_per_second=_per_second(max(usage.completion_tokens - 1, 0), usage.predicted_ms),
        cache_n=usage.cached_tokens,
        queue_ms=round(usage.queue_ms, 3),
    )


def _per_second(count: int, ms: float) -> float | None:
    return round(count * 1000 / ms, 3) if ms > 0 else None
