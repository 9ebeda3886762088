"""How far an answer has come: what the log tells of it."""

from __future__ import annotations

from dataclasses import dataclass

from mashbox.chat.types import Done


@dataclass(slots=True)
class Progress:
    """Filled in as events come. Times in seconds since the request's arrival; None: not yet."""

    cached_tokens: int | None = None
    started_s: float | None = None
    """It got a slot."""
    first_text_s: float | None = None
    pieces: int = 0
    """Pieces of text that came: about as many as tokens."""
    done: Done | None = None
    texts: list[str] | None = None
    """Those pieces, as the model wrote them; kept only for a log that shows answers."""
