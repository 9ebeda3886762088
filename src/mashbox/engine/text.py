"""Token bytes to text: whole characters only, and nothing of a stop string.

Pure. The result does not depend on how the bytes were cut into tokens.
"""

from __future__ import annotations

import codecs
from collections import deque
from collections.abc import Sequence


class StopMatcher:
    """Finds the first stop string to be completed, character by character (Aho-Corasick).

    Of several completed by the same character the longest counts. Time is linear in the text
    whatever the stop strings are.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._next: list[dict[str, int]] = [{}]
        self._depth: list[int] = [0]
        self._match: list[str | None] = [None]
        for stop in stops:
            self._insert(stop)
        self._fail = self._link()
        self._state = 0

    def _insert(self, stop: str) -> None:
        node = 0
        for char in stop:
            child = self._next[node].get(char)
            if child is None:
                child = len(self._next)
                self._next[node][char] = child
                self._next.append({})
                self._depth.append(self._depth[node] + 1)
                self._match.append(None)
            node = child
        self._match[node] = stop

    def _link(self) -> list[int]:
        fail = [0] * len(self._next)
        queue = deque(self._next[0].values())
        while queue:
            node = queue.popleft()
            for char, child in self._next[node].items():
                back = fail[node]
                while back and char not in self._next[back]:
                    back = fail[back]
                fail[child] = self._next[back].get(char, 0)
                if self._match[child] is None:
                    self._match[child] = self._match[fail[child]]
                queue.append(child)
        return fail

    @property
    def held(self) -> int:
        """Characters at the end of the text so far that may begin a stop string."""
        return self._depth[self._state]

    def reset(self) -> None:
        """Forget the text so far."""
        self._state = 0

    def feed(self, text: str) -> tuple[int, str] | None:
        """Read more text; (characters read, the stop string they complete) at the first match."""
        state = self._state
        for index, char in enumerate(text):
            while state and char not in self._next[state]:
                state = self._fail[state]
            state = self._next[state].get(char, 0)
            found = self._match[state]
            if found is not None:
                self._state = 0
                return index + 1, found
        self._state = state
        return None


class Utf8:
    """Bytes to whole characters; invalid bytes become U+FFFD."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._pending = False

    def feed(self, piece: bytes) -> str:
        """The characters that `piece` completes."""
        if not self._pending and piece.isascii():
            return piece.decode("ascii")
        text = self._decoder.decode(piece)
        self._pending = bool(self._decoder.getstate()[0])
        return text

    def flush(self) -> str:
        """What an incomplete character at the end becomes."""
        self._pending = False
        return self._decoder.decode(b"", final=True)


class TextAssembler:
    """Turns token bytes into text that may be shown.

    Incomplete characters and possible beginnings of a stop string are held back. Invalid bytes
    become U+FFFD. After a stop string (`stop` is set) nothing more comes out.
    """

    def __init__(self, stops: Sequence[str] = ()) -> None:
        self._decoder = Utf8()
        self._matcher = StopMatcher(stops) if stops else None
        self._held = ""
        self.stop: str | None = None

    def feed(self, piece: bytes) -> str:
        """Text that the next token's bytes release; may be empty."""
        return self.read(self._decoder.feed(piece))

    def flush(self) -> str:
        """The tail, once, when generation ended for another reason than a stop string."""
        return self.read(self._decoder.flush()) + self.interrupt()

    def interrupt(self) -> str:
        """What is held back comes out: a stop string that has begun will not go on."""
        if self._matcher is not None:
            self._matcher.reset()
        tail, self._held = self._held, ""
        return tail

    def read(self, text: str) -> str:
        """Like `feed`, for text that is decoded already."""
        if self._matcher is None:
            return text
        if self.stop is not None or not text:
            return ""
        found = self._matcher.feed(text)
        text = self._held + text
        if found is not None:
            read, self.stop = found
            end = len(self._held) + read - len(self.stop)
            self._held = ""
            return text[:end]
        keep = len(text) - self._matcher.held
        self._held = text[keep:]
        return text[:keep]
