"""Errors in Anthropic's shape: `{"type": "error", "error": {"type", "message"}, "request_id"}`."""

from __future__ import annotations

from typing import Any

from mashbox import errors
from mashbox.http.echo import cut

PATHS = "/v1/messages"
"""Every path that begins so has errors of this shape."""

OVERLOADED = 529
ERROR_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    OVERLOADED: "overloaded_error",
}
"""Anthropic's error type for each status; all others are "invalid_request_error"."""


def error_status(error: errors.RequestError) -> int:
    """The status on these routes: a server that is not ready is overloaded, as is one whose queue is full."""
    full = isinstance(error, errors.NotReadyError | errors.QueueFullError)
    return OVERLOADED if full else error.status


def error_body(error: errors.RequestError, request_id: str) -> dict[str, Any]:
    """The whole body of an error response, or the data of an error event."""
    kind = ERROR_TYPES.get(error_status(error), "invalid_request_error")
    return {
        "type": "error",
        "error": {"type": kind, "message": _message(error)},
        "request_id": request_id,
    }


def error_headers(error: errors.RequestError) -> dict[str, str]:
    """Whether it is worth another try, where clients would guess wrong."""
    if isinstance(error, errors.NotReadyError):
        return {"x-should-retry": "true"}
    if isinstance(error, errors.AuthenticationError):
        return {"x-should-retry": "false"}
    return {}


def _message(error: errors.RequestError) -> str:
    if not isinstance(error, errors.ContextLengthError):
        return cut(str(error))
    # Clients read these words: they shorten the conversation.
    least = "" if error.counted else "at least "
    return f"prompt is too long: {least}{error.prompt_tokens} tokens > {error.context - 1} maximum"
