"""Calls written as Python: `[name(key="value", other=[1, 2]), ...]`, turned into JSON text."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from mashbox.chat.formats import json_text
from mashbox.chat.formats.json_text import Dialect

PYTHON = Dialect(
    plain=re.compile(r"""[^"'\[\](){}<]*"""),
    strings={'"': re.compile(r'[^"\\]*'), "'": re.compile(r"[^'\\]*")},
    closers={"{": "}", "[": "]", "(": ")"},
)

_SPACE = re.compile(r"\s*")
_NAME = re.compile(r"[^\s(),=\[\]{}\"']+")
_STRING = re.compile(r"""(["'])((?:(?!\1)[^\\])*(?:\\.(?:(?!\1)[^\\])*)*)\1""", re.DOTALL)
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?![\w.])")
_WORD = re.compile(r"[A-Za-z]+")
_WORDS = {"True": "true", "False": "false", "None": "null", "true": "true", "false": "false", "null": "null"}
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "0": "\0", "\n": ""}


def read_calls(text: str) -> list[tuple[str, str]]:
    """Each call's name and its arguments as the JSON text of an object. Raises ValueError."""
    return _Parser(text).calls()


class _Parser:
    """A place in the text. The caller has bounded the nesting."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def calls(self) -> list[tuple[str, str]]:
        calls: list[tuple[str, str]] = []
        self._expect("[")
        self._listed("]", lambda: calls.append(self._call()))
        self._skip()
        if self._at != len(self._text):
            raise ValueError("text after the calls")
        return calls

    def _call(self) -> tuple[str, str]:
        name = self._match(_NAME)[0]
        arguments: dict[str, str] = {}

        def argument() -> None:
            key = self._match(_NAME)[0]
            self._expect("=")
            arguments[key] = self._value()

        self._expect("(")
        self._listed(")", argument)
        return name, _object(arguments)

    def _value(self) -> str:
        self._skip()
        char = self._text[self._at : self._at + 1]
        if char in ("[", "("):
            return self._list("]" if char == "[" else ")")
        if char == "{":
            return self._dict()
        if char in ('"', "'"):
            return json_text.write(self._string())
        if char.isalpha():
            return _word(self._match(_WORD)[0])
        return self._match(_NUMBER)[0]

    def _list(self, closer: str) -> str:
        values: list[str] = []
        self._at += 1
        self._listed(closer, lambda: values.append(self._value()))
        return f"[{', '.join(values)}]"

    def _dict(self) -> str:
        members: dict[str, str] = {}

        def member() -> None:
            self._skip()
            key = self._string()
            self._expect(":")
            members[key] = self._value()

        self._at += 1
        self._listed("}", member)
        return _object(members)

    def _string(self) -> str:
        quote, body = self._match(_STRING).groups()
        if quote == '"':
            try:
                return str(json.loads(f'"{body}"', strict=False))
            except ValueError:
                pass  # Python's escapes are others
        return _ESCAPE.sub(_unescape, body)

    def _listed(self, closer: str, item: Callable[[], None]) -> None:
        """Items parted by commas up to `closer`; one comma may stand last."""
        while not self._next_is(closer):
            item()
            if not self._next_is(","):
                self._expect(closer)
                return

    def _next_is(self, char: str) -> bool:
        self._skip()
        found = self._text.startswith(char, self._at)
        self._at += found
        return found

    def _expect(self, char: str) -> None:
        if not self._next_is(char):
            raise ValueError(f"no {char} at {self._at}")

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str]:
        self._skip()
        found = pattern.match(self._text, self._at)
        if found is None:
            raise ValueError(f"unknown text at {self._at}")
        self._at = found.end()
        return found

    def _skip(self) -> None:
        found = _SPACE.match(self._text, self._at)
        assert found is not None
        self._at = found.end()


def _object(members: dict[str, str]) -> str:
    return "{" + ", ".join(f"{json_text.write(key)}: {value}" for key, value in members.items()) + "}"


def _word(word: str) -> str:
    if word not in _WORDS:
        raise ValueError(f"{word} is no value")
    return _WORDS[word]


def _unescape(found: re.Match[str]) -> str:
    code = found[1]
    if len(code) > 1:
        point = int(code[1:], 16)
        return chr(point) if point <= 0x10FFFF else found[0]
    if code in "\\'\"":
        return code
    return _ESCAPED.get(code, found[0])
