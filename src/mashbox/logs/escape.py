"""Text of others in our log: nothing that a terminal obeys, no line that looks like ours."""

from __future__ import annotations

import re

LABEL_CHARACTERS = 64
_SUSPECT = re.compile(r"[^\x20-\x7e]")


def escaped(text: str, keep: str = "") -> str:
    """The text with every character that cannot be shown as an escape; those in `keep` stay."""

    def shown(found: re.Match[str]) -> str:
        character = found[0]
        return character if character.isprintable() or character in keep else _escape(character)

    return _SUSPECT.sub(shown, text)


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def label(text: str, most: int = LABEL_CHARACTERS) -> str:
    """An id or name that a client gave, fit to be logged and told back: one line, printable, cut."""
    shown = escaped(text[: most + 1].strip())
    return shown if len(shown) <= most else shown[: most - 1] + "…"
