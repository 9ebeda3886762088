"""What a client sent, as it may be told back."""

from __future__ import annotations

from mashbox.logs.escape import label

MAX_ECHO = 256
MAX_MESSAGE = 2000
"""Characters, both."""


def echo(text: str) -> str:
    """At most MAX_ECHO characters of a name or an id, on one line, what cannot be shown escaped."""
    return label(text, MAX_ECHO)


def cut(text: str, limit: int = MAX_MESSAGE) -> str:
    """At most `limit` characters of `text`; an ellipsis stands for the rest."""
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
