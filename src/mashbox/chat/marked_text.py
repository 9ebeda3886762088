"""String methods that see through a shield: text with stand-ins acts as if it had none.

Stand-ins keep a text's length, so a cut found in the uncovered text is a cut in the covered one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mashbox.chat.shield import Shield

_CUTS = {"split", "rsplit", "partition", "rpartition"}
_STRIPS = {"strip", "lstrip", "rstrip", "removeprefix", "removesuffix"}
_ANSWERS = {
    *("startswith", "endswith", "find", "rfind", "index", "rindex", "count"),
    *("isalnum", "isalpha", "isascii", "isdecimal", "isdigit", "isidentifier", "islower"),
    *("isnumeric", "isprintable", "isspace", "istitle", "isupper"),
}
_SEEING = _CUTS | _STRIPS | _ANSWERS


def call_method(shield: Shield, text: str, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """`text.name(*args, **kwargs)`, where text and arguments may hold stand-ins.

    The result keeps the stand-ins of the pieces it is made of. Raises what the method raises.
    """
    method: Callable[..., Any] = getattr(text, name)
    if name == "replace":
        return replace(shield, text, *args, **kwargs)
    if name not in _SEEING:
        return method(*args, **kwargs)
    raw = shield.uncover(text)
    shown = getattr(raw, name)(*map(shield.uncover_value, args), **_uncovered(shield, kwargs))
    if name in _ANSWERS:
        return shown
    if name in _STRIPS:
        return _stripped(text, raw, shown, name)
    separator = args[0] if args else kwargs.get("sep")
    if separator is None:
        return method(*args, **kwargs)  # cuts at white space, which is never covered
    if "partition" in name:
        return tuple(_pieces(text, shown, 0))
    return _pieces(text, shown, len(separator))


def replace(shield: Shield, text: str, old: str, new: str, count: int = -1) -> str:
    """`text.replace(old, new, count)` that sees through the shield."""
    if not old:
        return text.replace(old, new, count)
    shown = shield.uncover(text).split(shield.uncover(old), count)
    return new.join(_pieces(text, shown, len(old)))


def _uncovered(shield: Shield, kwargs: dict[str, Any]) -> dict[str, Any]:
    return {key: shield.uncover_value(value) for key, value in kwargs.items()}


def _pieces(text: str, shown: Sequence[str], gap: int) -> list[str]:
    """Cut `text` where its uncovered twin was cut into `shown`, `gap` characters apart."""
    pieces, start = [], 0
    for piece in shown:
        pieces.append(text[start : start + len(piece)])
        start += len(piece) + gap
    return pieces


def _stripped(text: str, raw: str, shown: str, name: str) -> str:
    """What is left of `text` when `shown` is left of its uncovered twin `raw`."""
    if name in ("lstrip", "removeprefix"):
        return text[len(text) - len(shown) :]
    if name in ("rstrip", "removesuffix"):
        return text[: len(shown)]
    start = raw.find(shown)  # a stripped text starts where it first occurs
    return text[start : start + len(shown)]
