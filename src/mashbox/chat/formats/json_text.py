"""JSON inside an answer: found as it streams in, and taken apart without changing a byte."""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

from mashbox.chat.formats.cursor import WHITE_SPACE, Cursor, Reading

MAX_DEPTH = 200
"""Objects and arrays nested deeper than this are not read."""

_PLAIN = re.compile(rf"[{WHITE_SPACE}0-9A-Za-z+\-.,:]*")  # what stands outside strings and brackets
_IN_STRING = re.compile(r'[^"\\\x00-\x1f]*')
_CLOSERS = {"{": "}", "[": "]"}
_SPACE = re.compile(f"[{WHITE_SPACE}]*")


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


# Numbers stay text: their value is never needed, and a huge one must not fail.
_DECODER = json.JSONDecoder(parse_constant=_refuse, parse_int=float, parse_float=float)


def read_container(cursor: Cursor) -> Reading[str | None]:
    """Step over an object or array and give its text; None if what comes cannot be one.

    Brackets and strings are followed, no more: the text may still be no JSON.
    """
    scan = _Scan()
    pieces = []
    while True:
        end = scan.advance(cursor.text, cursor.at)
        pieces.append(cursor.take(end - cursor.at))
        if scan.failed:
            return None
        if scan.complete:
            return "".join(pieces)
        if not (yield from cursor.more()):
            return None


class _Scan:
    """Where in an object or array a scan is."""

    def __init__(self) -> None:
        self.failed = False
        self.complete = False
        self._closers: list[str] = []
        self._in_string = False

    def advance(self, text: str, at: int) -> int:
        """Scan on; how far it came. A backslash that ends the text is left for later."""
        while at < len(text) and not self.failed and not self.complete:
            step = self._string if self._in_string else self._outside
            after = step(text, at)
            if after == at:
                break
            at = after
        return at

    def _string(self, text: str, at: int) -> int:
        found = _IN_STRING.match(text, at)
        assert found is not None
        at = found.end()
        if at == len(text):
            return at
        if text[at] == "\\":
            return at + 2 if at + 2 <= len(text) else at
        self._in_string = False
        self.failed = text[at] != '"'
        return at if self.failed else at + 1

    def _outside(self, text: str, at: int) -> int:
        if self._closers:
            found = _PLAIN.match(text, at)
            assert found is not None
            at = found.end()
            if at == len(text):
                return at
        char = text[at]
        if char in _CLOSERS and len(self._closers) < MAX_DEPTH:
            self._closers.append(_CLOSERS[char])
        elif self._closers and char == self._closers[-1]:
            self._closers.pop()
            self.complete = not self._closers
        elif self._closers and char == '"':
            self._in_string = True
        else:
            self.failed = True
            return at
        return at + 1


def parse(text: str) -> Any:
    """The value of a JSON text; numbers are floats. Raises ValueError, also for NaN and for deep nesting."""
    try:
        value, end = _DECODER.raw_decode(text, _skip(text, 0))
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if _skip(text, end) != len(text):
        raise ValueError("text after the value")
    return value


def members(text: str) -> dict[str, tuple[Any, str]]:
    """An object's members: each name's value and the very text of that value. Raises ValueError."""
    return {key: (value, raw) for key, value, raw in _walk(text, "{", "}")}


def items(text: str) -> list[str]:
    """The texts of an array's items. Raises ValueError."""
    return [raw for _, _, raw in _walk(text, "[", "]")]


def _walk(text: str, opener: str, closer: str) -> list[tuple[str, Any, str]]:
    """Members or items of a container that is the whole text, as (name or "", value, text of the value)."""
    found: list[tuple[str, Any, str]] = []
    at = _expect(text, _skip(text, 0), opener)
    if text.startswith(closer, at):
        at += 1
    else:
        while True:
            at = _one(text, at, opener == "{", found)
            if not text.startswith(",", at):
                at = _expect(text, at, closer, skip=False)
                break
            at = _skip(text, at + 1)
    if _skip(text, at) != len(text):
        raise ValueError("text after the value")
    return found


def _one(text: str, at: int, named: bool, found: list[tuple[str, Any, str]]) -> int:
    key = ""
    if named:
        key, at = _DECODER.raw_decode(text, at)
        if not isinstance(key, str):
            raise ValueError("a name is no string")
        at = _expect(text, _skip(text, at), ":")
    value, end = _DECODER.raw_decode(text, at)
    found.append((key, value, text[at:end]))
    return _skip(text, end)


def _expect(text: str, at: int, char: str, *, skip: bool = True) -> int:
    if not text.startswith(char, at):
        raise ValueError(f"no {char} at {at}")
    return _skip(text, at + 1) if skip else at + 1


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    assert found is not None
    return found.end()


def write(value: Any) -> str:
    """A value as JSON text, characters as they are where UTF-8 has them."""
    text = json.dumps(value, ensure_ascii=False)
    return text if is_unicode(text) else json.dumps(value)


def is_unicode(text: str) -> bool:
    """Whether UTF-8 can carry `text`: it holds no lone surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
