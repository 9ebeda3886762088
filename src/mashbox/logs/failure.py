"""An exception in the log: where it came from, and its message where that holds nothing of a request."""

from __future__ import annotations

import traceback

from mashbox.errors import BackendError, ConfigError, EngineError

TOLD = (OSError, MemoryError, BackendError, ConfigError, EngineError)
"""Their messages never quote a prompt or an answer; those of all others may."""
_CAUSE = "which was the cause of:"
_CONTEXT = "and while that was handled:"
_MOST_CHAINED = 10


def told_failure(error: BaseException, content: bool) -> str:
    """The traceback, first causes first. With `content` all messages are told."""
    parts: list[str] = []
    link: str | None = None
    current: BaseException | None = error
    while current is not None and len(parts) < _MOST_CHAINED:
        told = _told_alone(current, content)
        parts.append(told if link is None else f"{told}\n{link}")
        current, link = _before(current)
    return "\n".join(reversed(parts))


def _before(error: BaseException) -> tuple[BaseException | None, str]:
    if error.__cause__ is not None:
        return error.__cause__, _CAUSE
    return (None if error.__suppress_context__ else error.__context__), _CONTEXT


def _told_alone(error: BaseException, content: bool) -> str:
    frames = "".join(traceback.format_tb(error.__traceback__))
    message = str(error) if content or isinstance(error, TOLD) else "(message left out)"
    lines = [f"{frames}{type(error).__qualname__}: {message}"]
    if isinstance(error, BaseExceptionGroup):
        lines += [told_failure(inner, content) for inner in error.exceptions[:_MOST_CHAINED]]
    return "\n".join(lines)
