"""The reader all formats share: it drives a family's generator and turns what it finds into events."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from mashbox.chat.formats.cursor import WHITE_SPACE, Cursor, Marks, Reading
from mashbox.chat.types import Call, Text


class Output:
    """The events of one answer. White space that touches a call belongs to the call and is dropped.

    So white space is held back until text comes after it; all other text comes out as it is.
    """

    def __init__(self) -> None:
        self._events: list[Text | Call] = []
        self._space: list[str] = []
        self._after_call = False
        self.at_line_start = True
        """Whether the text so far ends with a line break, or there is none since a call."""

    def text(self, text: str) -> None:
        """`text` is no part of a call."""
        if self._after_call:
            text = text.lstrip(WHITE_SPACE)
        if not text:
            return
        self._after_call = False
        line = text[text.rfind("\n") + 1 :]
        self.at_line_start = not line.strip(WHITE_SPACE) and (self.at_line_start or len(line) < len(text))
        body = text.rstrip(WHITE_SPACE)
        if body:
            self._events.append(Text("".join([*self._space, body])))
            self._space.clear()
        if len(body) < len(text):
            self._space.append(text[len(body) :])

    def call(self, name: str, arguments: str) -> None:
        """A whole call has been read."""
        self._space.clear()
        self._events.append(Call(name, arguments))
        self._after_call = True
        self.at_line_start = True

    def finish(self) -> None:
        """No more comes: white space at the very end is text after all."""
        if self._space:
            self._events.append(Text("".join(self._space)))
            self._space.clear()

    def drain(self) -> Sequence[Text | Call]:
        """The events since the last time; neighbouring texts are one."""
        events, self._events = self._events, []
        return events if len(events) < 2 else _joined(events)


def _joined(events: Sequence[Text | Call]) -> Sequence[Text | Call]:
    joined: list[Text | Call] = []
    run: list[str] = []
    for event in events:
        if isinstance(event, Text):
            run.append(event.text)
            continue
        if run:
            joined.append(Text("".join(run)))
            run.clear()
        joined.append(event)
    if run:
        joined.append(Text("".join(run)))
    return joined


ReadAnswer = Callable[[Cursor, Output], Reading[None]]
"""Reads a whole answer to its end."""


class AnswerReader:
    """A CallReader around a generator that reads a whole answer."""

    def __init__(self, read: ReadAnswer) -> None:
        self._read = read
        self._start()

    def _start(self) -> None:
        self._cursor = Cursor()
        self._output = Output()
        self._run = self._read(self._cursor, self._output)
        next(self._run)  # to its first wait for text

    def feed(self, text: str) -> Sequence[Text | Call]:
        """See CallReader."""
        self._cursor.push(text)
        next(self._run)
        return self._output.drain()

    def finish(self) -> Sequence[Text | Call]:
        """See CallReader."""
        self._cursor.ended = True
        for _ in self._run:
            raise AssertionError("a reader does not wait after the end")
        self._output.finish()
        events = self._output.drain()
        self._start()
        return events


ReadBlock = Callable[[Cursor, Output], Reading[bool]]
"""Reads on after an opener; what is a call goes out. False: what was not released is text."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """An answer of text in which each opener begins a block of calls."""

    readers: Mapping[str, ReadBlock]
    marks: Marks

    @classmethod
    def of(cls, readers: Mapping[str, ReadBlock]) -> Blocks:
        """`readers` by the opener of their blocks."""
        return cls(readers, Marks(*readers))

    def read(self, cursor: Cursor, output: Output) -> Reading[None]:
        """Read to the end of the answer.

        After a block that is none, reading goes on where it failed, so no text is read twice.
        """
        while (opener := (yield from self._next_opener(cursor, output))) is not None:
            well_formed = yield from self.readers[opener](cursor, output)
            rest = cursor.release()
            if not well_formed:
                output.text(rest)

    def _next_opener(self, cursor: Cursor, output: Output) -> Reading[str | None]:
        while True:
            found = self.marks.search(cursor)
            clear = found.start() - cursor.at if found else self.marks.clear(cursor)
            cursor.take(clear)
            output.text(cursor.release())
            if found is not None:
                return cursor.take(len(found[0]))
            if not (yield from cursor.more()):
                cursor.take(len(cursor.text) - cursor.at)
                output.text(cursor.release())
                return None
