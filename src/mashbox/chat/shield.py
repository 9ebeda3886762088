"""Keeps text that came from a request from turning into control tokens.

A chat template mixes its own control tokens with the text of the conversation, and afterwards
nobody can tell `<|im_end|>` written by the template from `<|im_end|>` typed by a user. So before
the template runs, every character of the request's text that control literals are made of
(`<`, `|`, `>`, ...) is swapped for a private-use stand-in, one for one, and afterwards swapped back.
A control literal in the result that holds a stand-in was not written by the template, however
the template cut, trimmed, doubled or glued the text: it becomes a plain-text segment.

Letters, digits and `_` are not swapped, so a template that writes `<|` and `|>` around a word of the
request spells a control token, and means to. Literals of white space or quotes alone are not shielded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mashbox.engine.types import Segment
from mashbox.errors import InvalidRequestError

_PRIVATE = re.compile("[\ue000-\uf8ff\U000f0000-\U000ffffd\U00100000-\U0010fffd]")
_PRIVATE_RANGES = (range(0xE000, 0xF900), range(0xF0000, 0xFFFFE), range(0x100000, 0x10FFFE))

_ESCAPED = re.compile(r"\\(?:u[ef][0-9a-f]{3}|U00(?:0f|10)[0-9a-f]{4})")
"""How Python's notation of a list shows private-use characters, and a few others."""

# Never swapped: trimming and JSON escaping must see them as they are.
_PLAIN = re.compile(r'[\s"\\]')

_STRUCTURE = frozenset(
    {
        *("id", "type", "function", "name", "description", "arguments", "text", "thinking"),
        *("parameters", "properties", "required", "items", "enum"),
    }
)
"""Keys by which templates find their way; a letter of theirs may be a character to swap."""


class ControlLiterals:
    """The texts that become control tokens when specials are parsed."""

    def __init__(self, literals: Iterable[str]) -> None:
        words = sorted({literal for literal in literals if _PLAIN.sub("", literal)})
        self._pattern = re.compile(_alternation(words)) if words else None
        self.chars = "".join(sorted({char for word in words for char in _telling_chars(word)}))
        """The characters to swap: each literal has at least one of them."""

    def find(self, text: str) -> Iterator[tuple[int, int]]:
        """(start, end) of the longest literal at every position where one starts; they may overlap."""
        if self._pattern is None:
            return
        found = self._pattern.search(text)
        while found:
            yield found.span()
            found = self._pattern.search(text, found.start() + 1)


def _telling_chars(literal: str) -> set[str]:
    chars = set(_PLAIN.sub("", literal))
    return {char for char in chars if not re.match(r"\w", char)} or chars


def _alternation(words: Sequence[str]) -> str:
    """A pattern for the longest of sorted `words`, shaped as a prefix tree so that it stays linear."""
    prefix = _common_prefix(words[0], words[-1])
    groups: dict[str, list[str]] = {}
    for word in words:
        if rest := word[len(prefix) :]:
            groups.setdefault(rest[0], []).append(rest)
    if not groups:
        return re.escape(prefix)
    ends_here = "?" if words[0] == prefix else ""
    return f"{re.escape(prefix)}(?:{'|'.join(map(_alternation, groups.values()))}){ends_here}"


def _common_prefix(first: str, last: str) -> str:
    same = 0
    while same < min(len(first), len(last)) and first[same] == last[same]:
        same += 1
    return first[:same]


@dataclass(frozen=True, slots=True)
class Shield:
    """One choice of stand-ins: `marks[i]` stands for `chars[i]` and occurs nowhere else."""

    chars: str
    marks: str

    @classmethod
    def avoiding(cls, chars: str, taken: set[str]) -> Shield:
        """The first private-use characters that are not `taken`."""
        free = (chr(code) for codes in _PRIVATE_RANGES for code in codes if chr(code) not in taken)
        marks = "".join(mark for mark, _ in zip(free, chars, strict=False))
        if len(marks) < len(chars):
            raise InvalidRequestError(
                "The conversation uses nearly all private-use characters of Unicode.", param="messages"
            )
        return cls(chars, marks)

    def cover(self, text: str) -> str:
        """`text` with stand-ins; of the same length."""
        for char, mark in zip(self.chars, self.marks, strict=True):
            text = text.replace(char, mark)
        return text

    def uncover(self, text: str) -> str:
        """`text` as it was written."""
        if text.isascii():
            return text
        for char, mark in zip(self.chars, self.marks, strict=True):
            text = text.replace(mark, char)
        return text

    def unescape(self, text: str) -> str:
        """`text` with its stand-ins as they are, where a template printed a list in Python's notation."""
        if "\\" not in text:
            return text
        for mark in self.marks:
            text = text.replace(ascii(mark)[1:-1], mark)
        return text

    def cover_values(self, variables: Mapping[str, Any]) -> dict[str, Any]:
        """A mapping with every string in its JSON-like values covered; its own keys as they are."""
        return {name: self.cover_value(value) for name, value in variables.items()}

    def cover_value(self, value: Any) -> Any:
        """A JSON-like value with every string in it covered, and all keys but those of its structure."""
        if isinstance(value, str):
            return self.cover(value)
        if isinstance(value, dict):
            return {
                key if key in _STRUCTURE else self.cover(key): self.cover_value(item)
                for key, item in value.items()
            }
        if isinstance(value, list | tuple):
            return [self.cover_value(item) for item in value]
        return value

    def uncover_value(self, value: Any) -> Any:
        """A string, or a list or tuple of them, as it was written; other values as they are."""
        if isinstance(value, str):
            return self.uncover(value)
        if isinstance(value, list | tuple):
            return type(value)(map(self.uncover_value, value))
        return value


def private_characters(value: Any) -> set[str]:
    """The private-use characters in all strings of a JSON-like value, those escaped by a backslash too."""
    if isinstance(value, str):
        found = set() if value.isascii() else set(_PRIVATE.findall(value))
        escaped = _ESCAPED.findall(value) if "\\" in value else ()
        return found | {chr(int(escape[2:], 16)) for escape in escaped}
    if isinstance(value, dict):
        return private_characters(list(value.keys())) | private_characters(list(value.values()))
    if isinstance(value, list | tuple):
        return set().union(*map(private_characters, value))
    return set()


def split_segments(rendered: str, shield: Shield, literals: ControlLiterals) -> tuple[Segment, ...]:
    """A rendered template as segments: control literals that hold request text cannot become tokens.

    Neighbours differ in kind, none is empty, and their texts join to the uncovered rendering.
    """
    rendered = shield.unescape(rendered)
    text = shield.uncover(rendered)
    if not text:
        return ()
    if text == rendered:
        return (Segment(text, True),)
    plain = _plain_mask(rendered, text, shield, literals)
    segments = []
    for run in re.finditer(rb"\x00+|\x01+", plain):
        segments.append(Segment(text[run.start() : run.end()], not plain[run.start()]))
    return tuple(segments)


def _plain_mask(rendered: str, text: str, shield: Shield, literals: ControlLiterals) -> bytearray:
    """One byte per character: 1 where it must stay plain text."""
    mask = bytearray(len(text))
    own: list[tuple[int, int]] = []
    marks = set(shield.marks)
    for start, end in literals.find(text):
        if marks.isdisjoint(rendered[start:end]):
            own.append((start, end))
        else:
            mask[start:end] = b"\x01" * (end - start)
    for start, end in own:  # has no stand-in, so the others stay broken
        mask[start:end] = bytes(end - start)
    return mask
