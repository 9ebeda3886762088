"""JSON inside an answer: found as it streams in, and taken apart without changing a byte."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from mashbox.chat.formats.cursor import WHITE_SPACE, Cursor, Reading

MAX_DEPTH = 100
"""Objects and arrays nested deeper than this are not read."""

_SPACE = re.compile(f"[{WHITE_SPACE}]*")


@dataclass(frozen=True, slots=True)
class Dialect:
    """How brackets and strings look: enough to find a value's end."""

    plain: re.Pattern[str]
    """What may stand outside strings and brackets."""
    strings: Mapping[str, re.Pattern[str]]
    """What may stand in a string besides escapes, by its quote."""
    closers: Mapping[str, str]
    """By opener."""


JSON = Dialect(
    plain=re.compile(rf"[{WHITE_SPACE}0-9aeflnrstuE+\-.,:]*"),
    strings={'"': re.compile(r'[^"\\\x00-\x1f]*')},
    closers={"{": "}", "[": "]"},
)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


# Numbers become floats: no value is needed, only that it is one, and a huge integer must not fail.
_DECODER = json.JSONDecoder(parse_constant=_refuse, parse_int=float, parse_float=float)


def read_container(cursor: Cursor, dialect: Dialect = JSON) -> Reading[str | None]:
    """Step over an object or array and give its text; None if what comes cannot be one.

    Brackets and strings are followed, no more: the text may still be no JSON.
    """
    scan = _Scan(dialect)
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

    def __init__(self, dialect: Dialect) -> None:
        self.failed = False
        self.complete = False
        self._dialect = dialect
        self._closers: list[str] = []
        self._quote = ""  # of the string the scan is in

    def advance(self, text: str, at: int) -> int:
        """Scan on; how far it came. A backslash that ends the text is left for later."""
        while at < len(text) and not self.failed and not self.complete:
            after = self._string(text, at) if self._quote else self._outside(text, at)
            if after == at:
                break
            at = after
        return at

    def _string(self, text: str, at: int) -> int:
        at = _end(self._dialect.strings[self._quote], text, at)
        if at == len(text):
            return at
        if text[at] == "\\":
            return at + 2 if at + 2 <= len(text) else at
        if text[at] != self._quote:
            self.failed = True
            return at
        self._quote = ""
        return at + 1

    def _outside(self, text: str, at: int) -> int:
        if self._closers:
            at = _end(self._dialect.plain, text, at)
            if at == len(text):
                return at
        char = text[at]
        if char in self._dialect.closers and len(self._closers) < MAX_DEPTH:
            self._closers.append(self._dialect.closers[char])
        elif self._closers and char == self._closers[-1]:
            self._closers.pop()
            self.complete = not self._closers
        elif self._closers and char in self._dialect.strings:
            self._quote = char
        else:
            self.failed = True
            return at
        return at + 1


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    """Where the run that `pattern` matches ends."""
    found = pattern.match(text, at)
    assert found is not None
    return found.end()


def parse(text: str) -> Any:
    """The value of a JSON text; numbers are floats. Raises ValueError, also for NaN and for deep nesting."""
    start = _skip(text, 0)
    if text[start : start + 1] in JSON.closers:
        scan = _Scan(JSON)
        scan.advance(text, start)
        if not scan.complete:
            raise ValueError("nested too deeply, or not complete")
    value, end = _DECODER.raw_decode(text, start)
    if _skip(text, end) != len(text):
        raise ValueError("text after the value")
    return value


def is_shallow(value: Any) -> bool:
    """Whether no more than MAX_DEPTH objects and arrays stand within each other."""
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [inner for outer in level if isinstance(outer, dict | list) for inner in _contents(outer)]
        if not level:
            return True
    return False


def _contents(container: dict[str, Any] | list[Any]) -> Iterable[Any]:
    return container.values() if isinstance(container, dict) else container


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
    return _end(_SPACE, text, at)


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
