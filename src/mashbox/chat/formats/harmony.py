"""gpt-oss: messages with channels, told apart by control tokens.

    <|channel|>final<|message|>TEXT<|end|>
    <|start|>assistant<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{...}<|call|>

The prompt ends with `<|start|>assistant`, so an answer begins within a header. Thinking (the
analysis channel) has been taken out before.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from mashbox.chat.formats.cursor import Cursor, Marks, Reading, next_of, one_of, run_of, white_space
from mashbox.chat.formats.format import CallReader
from mashbox.chat.formats.grammar import CallSyntax
from mashbox.chat.formats.json_call import object_text, tool_names
from mashbox.chat.formats.json_text import read_container
from mashbox.chat.formats.reader import AnswerReader, Output
from mashbox.chat.types import Tool, ToolChoice
from mashbox.engine.types import Constraint

_START, _CHANNEL, _CONSTRAIN, _MESSAGE = "<|start|>", "<|channel|>", "<|constrain|>", "<|message|>"
_ENDS = ("<|end|>", "<|call|>", "<|return|>")
_ALL = (_START, _CHANNEL, _CONSTRAIN, _MESSAGE, *_ENDS)
_MARKS = Marks(*_ALL)
_HEADER_STARTS = (_START, _CHANNEL)
_RECIPIENT_FIRST = (" to=", "to=")
_NAMESPACE = "functions."

_SYNTAX = CallSyntax(
    head=lambda name: f"{_CHANNEL}commentary to={_NAMESPACE}{name} {_CONSTRAIN}json{_MESSAGE}",
    tail="",
    before=f"{_START}assistant",
)

_HEADER_TEXT = re.compile(r"[^<\n]*")
_CHANNEL_NAME = re.compile(r"<\|channel\|>\s*(\w+)")
_RECIPIENT = re.compile(r"to=([^\s<]+)")
_LONGEST_HEADER = 500
_BARE_HEADER = re.compile(  # perhaps cut short: nothing in it is for anybody's eyes
    r"(<\|start\|>\w*)?(\s*to=[^\s<]*)?(<\|channel\|>\w*)?(\s*to=[^\s<]*)?\s*(<\|constrain\|>\w*)?\s*(<[^>]*)?"
)


class Harmony:
    """Its reader is needed for every answer: even plain text comes in a message with a header."""

    name = "harmony"
    visible: tuple[str, ...] = _ALL
    openers: tuple[str, ...] = ()
    always = True

    def reader(self, tools: Sequence[Tool]) -> CallReader:
        """See ToolFormat."""
        names = tool_names(tools)
        return AnswerReader(lambda cursor, output: _answer(cursor, output, names))

    def constraint(self, tools: Sequence[Tool], choice: ToolChoice) -> Constraint:
        """One call, as the model's turn ends with it. After thinking, a new message must start."""
        return _SYNTAX.constraint(tools, choice)


def _answer(cursor: Cursor, output: Output, names: Collection[str]) -> Reading[None]:
    header = (yield from next_of(cursor, (*_HEADER_STARTS, *_RECIPIENT_FIRST))) is not None
    while True:
        if header:
            yield from _message(cursor, output, names)
        mark = yield from _text(cursor, output, shown=True)
        if mark is None:
            return
        header = mark in _HEADER_STARTS
        if not header:
            cursor.take(len(mark))
            cursor.release()


def _message(cursor: Cursor, output: Output, names: Collection[str]) -> Reading[None]:
    """Read a header and, up to the mark that ends it, its message."""
    header = yield from _header(cursor)
    if header is None:
        held = cursor.held() if cursor.ended else ""
        if 0 < len(held) <= _LONGEST_HEADER and _BARE_HEADER.fullmatch(held):
            cursor.take(len(cursor.text) - cursor.at)
            cursor.release()
        output.text(cursor.release())
        return
    recipient = _RECIPIENT.search(header)
    if recipient is None:
        cursor.release()
        channel = _CHANNEL_NAME.search(header)
        yield from _text(cursor, output, shown=channel is None or channel[1] != "analysis")
    elif not (yield from _call(cursor, output, recipient[1], names)):
        output.text(cursor.release())
        mark = yield from _text(cursor, output, shown=True)
        if mark in _ENDS:
            cursor.take(len(mark))
            output.text(cursor.release())


def _header(cursor: Cursor) -> Reading[str | None]:
    """Step over a header and its `<|message|>`; None if it is none."""
    pieces: list[str] = []
    while True:
        pieces.append((yield from run_of(cursor, _HEADER_TEXT)))
        mark = yield from one_of(cursor, (_START, _CHANNEL, _CONSTRAIN, _MESSAGE))
        if mark is None:
            return None
        if mark == _MESSAGE:
            return "".join(pieces)
        pieces.append(mark)


def _call(cursor: Cursor, output: Output, recipient: str, names: Collection[str]) -> Reading[bool]:
    name = recipient.removeprefix(_NAMESPACE)
    if name not in names:
        return False
    yield from white_space(cursor)
    text = yield from read_container(cursor)
    arguments = None if text is None else object_text(text)
    if arguments is None:
        return False
    yield from white_space(cursor)
    mark = yield from next_of(cursor, (*_ENDS, *_HEADER_STARTS))
    if mark is None and not (cursor.ended and cursor.at == len(cursor.text)):
        return False
    cursor.release()
    output.call(name, arguments)
    return True


def _text(cursor: Cursor, output: Output, *, shown: bool) -> Reading[str | None]:
    """Step over text up to the next mark, and tell which; None at the answer's end."""
    while True:
        found = _MARKS.search(cursor)
        cursor.take(found.start() - cursor.at if found else _MARKS.clear(cursor))
        text = cursor.release()
        if shown:
            output.text(text)
        if found is not None:
            return found[0]
        if not (yield from cursor.more()):
            cursor.take(len(cursor.text) - cursor.at)
            rest = cursor.release()
            if shown:
                output.text(rest)
            return None
