"""The event that every token is sent in: only its text changes, so all else is encoded once."""

from __future__ import annotations

import msgspec

HOLE = "\0"
"""What stands for the text in the event a frame is made of."""

_HOLE = msgspec.json.encode(HOLE)


class TextFrame:
    """The bytes around a text. `event` holds `HOLE`, JSON-encoded, exactly once."""

    def __init__(self, event: bytes) -> None:
        self._before, self._after = event.split(_HOLE)
        self._encode = msgspec.json.Encoder().encode

    def fill(self, text: str) -> bytes:
        """The event with `text`."""
        return self._before + self._encode(text) + self._after
