"""Llama 3: `{"name": ..., "parameters": {...}}` as the whole answer, several parted by `;`."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence

from mashbox.chat.formats.cursor import Cursor, Reading, literal, white_space
from mashbox.chat.formats.format import CallReader
from mashbox.chat.formats.grammar import CallSyntax
from mashbox.chat.formats.json_call import to_call, tool_names
from mashbox.chat.formats.json_text import read_container
from mashbox.chat.formats.reader import AnswerReader, Output
from mashbox.chat.types import Tool, ToolChoice
from mashbox.engine.types import Constraint

_TAG = "<|python_tag|>"
_SYNTAX = CallSyntax(
    head=lambda name: f'{{"name": {json.dumps(name, ensure_ascii=False)}, "parameters": ',
    tail="}",
)


class Llama3:
    """Calls stand at the answer's start only, with or without the tag before them."""

    name = "llama3"
    visible: tuple[str, ...] = (_TAG,)
    openers: tuple[str, ...] = ()
    always = False

    def reader(self, tools: Sequence[Tool]) -> CallReader:
        """See ToolFormat."""
        names = tool_names(tools)
        return AnswerReader(lambda cursor, output: _answer(cursor, output, names))

    def constraint(self, tools: Sequence[Tool], choice: ToolChoice) -> Constraint:
        """See ToolFormat."""
        return _SYNTAX.constraint(tools, choice)


def _answer(cursor: Cursor, output: Output, names: Collection[str]) -> Reading[None]:
    yield from white_space(cursor)
    yield from literal(cursor, _TAG)
    while (yield from _call(cursor, output, names)):
        yield from white_space(cursor)
        if not (yield from literal(cursor, ";")):
            break
        yield from white_space(cursor)
    output.text(cursor.release())
    yield from _rest_is_text(cursor, output)


def _call(cursor: Cursor, output: Output, names: Collection[str]) -> Reading[bool]:
    yield from white_space(cursor)
    text = yield from read_container(cursor)
    call = None if text is None else to_call(text, names)
    if call is None:
        return False
    cursor.release()
    output.call(call.name, call.arguments)
    return True


def _rest_is_text(cursor: Cursor, output: Output) -> Reading[None]:
    """Nothing that comes is a call."""
    while True:
        output.text(cursor.take(len(cursor.text) - cursor.at))
        cursor.release()
        if not (yield from cursor.more()):
            return
