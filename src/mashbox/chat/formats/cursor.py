"""An answer's text as it arrives, and the few ways a reader steps over it.

Readers are generators that yield when they need more text, so each reads as if all of it were there.
Every step scans new text only, whatever the pieces are.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import TypeAlias, TypeVar

T = TypeVar("T")
Reading: TypeAlias = Generator[None, None, T]
"""A step that yields while it waits for text, and then gives a T."""

WHITE_SPACE = " \t\r\n"
_WHITE_RUN = re.compile(f"[{WHITE_SPACE}]*")


class Cursor:
    """Text with a place in it. What was stepped over stays at hand until it is released."""

    def __init__(self) -> None:
        self.text = ""
        """What is at hand; grows at its end, and loses what lies before `at`, while a reader waits."""
        self.at = 0
        """Where in `text` the next character to read is."""
        self.ended = False
        """No more text comes."""
        self._taken: list[str] = []

    def push(self, text: str) -> None:
        """More text has come."""
        self.text = self.text[self.at :] + text
        self.at = 0

    def take(self, count: int) -> str:
        """Step over `count` characters that are at hand."""
        piece = self.text[self.at : self.at + count]
        self._taken.append(piece)
        self.at += len(piece)
        return piece

    def release(self) -> str:
        """All that was stepped over since the last release."""
        taken = "".join(self._taken)
        self._taken.clear()
        return taken

    def held(self) -> str:
        """What the next release gives, and all else that is at hand."""
        return "".join([*self._taken, self.text[self.at :]])

    def peek(self, count: int) -> str:
        """The next `count` characters, or as many as are at hand."""
        return self.text[self.at : self.at + count]

    def more(self) -> Reading[bool]:
        """Wait for text. False when none can come."""
        if self.ended:
            return False
        yield
        return True


def literal(cursor: Cursor, wanted: str) -> Reading[bool]:
    """Step over `wanted` if it is next; otherwise stay."""
    return (yield from one_of(cursor, (wanted,))) is not None


def one_of(cursor: Cursor, wanted: tuple[str, ...]) -> Reading[str | None]:
    """Step over the one of `wanted` that is next; otherwise stay. None of them may begin another."""
    found = yield from next_of(cursor, wanted)
    return None if found is None else cursor.take(len(found))


def next_of(cursor: Cursor, wanted: tuple[str, ...]) -> Reading[str | None]:
    """Which one of `wanted` is next, without a step."""
    while True:
        for text in wanted:
            if cursor.peek(len(text)) == text:
                return text
        rest = cursor.peek(max(map(len, wanted)))
        if not any(text.startswith(rest) for text in wanted) or not (yield from cursor.more()):
            return None


def literal_or_end(cursor: Cursor, wanted: str) -> Reading[bool]:
    """Like `literal`, but the answer may end before or within `wanted`."""
    if (yield from literal(cursor, wanted)):
        return True
    rest = cursor.peek(len(wanted))
    if cursor.ended and wanted.startswith(rest):
        cursor.take(len(rest))
        return True
    return False


def white_space(cursor: Cursor) -> Reading[str]:
    """Step over white space."""
    return (yield from run_of(cursor, _WHITE_RUN))


def run_of(cursor: Cursor, pattern: re.Pattern[str]) -> Reading[str]:
    """Step over all that `pattern`, a class of characters with a star, matches."""
    pieces = []
    while True:
        found = pattern.match(cursor.text, cursor.at)
        assert found is not None
        pieces.append(cursor.take(found.end() - cursor.at))
        if cursor.at < len(cursor.text) or not (yield from cursor.more()):
            return "".join(pieces)


def until(cursor: Cursor, marks: Marks) -> Reading[str]:
    """Step over the text before the next mark, and stay there; to the answer's end if none comes."""
    pieces = []
    while True:
        found = marks.search(cursor)
        if found is not None:
            pieces.append(cursor.take(found.start() - cursor.at))
            return "".join(pieces)
        pieces.append(cursor.take(marks.clear(cursor)))
        if not (yield from cursor.more()):
            pieces.append(cursor.take(len(cursor.text) - cursor.at))
            return "".join(pieces)


class Marks:
    """A few strings to look for."""

    def __init__(self, *marks: str) -> None:
        longest_first = sorted(marks, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first)))
        self._marks = marks
        self._first = {mark[0] for mark in marks}
        self.longest = len(longest_first[0])

    def search(self, cursor: Cursor) -> re.Match[str] | None:
        """The first whole mark at hand."""
        return self._pattern.search(cursor.text, cursor.at)

    def clear(self, cursor: Cursor) -> int:
        """How many characters at hand are no part of a mark whose end may still come.

        To be asked when `search` has found none.
        """
        text, end = cursor.text, len(cursor.text)
        for start in range(max(cursor.at, end - self.longest + 1), end):
            if text[start] in self._first and any(mark.startswith(text[start:]) for mark in self._marks):
                return start - cursor.at
        return end - cursor.at
