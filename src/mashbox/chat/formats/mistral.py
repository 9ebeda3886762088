"""Mistral: `[TOOL_CALLS][{"name": ..., "arguments": {...}}]`; newer ones `[TOOL_CALLS]NAME[ARGS]{...}`."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from mashbox.chat.formats.cursor import Cursor, Reading, literal, run_of, white_space
from mashbox.chat.formats.format import CallReader
from mashbox.chat.formats.grammar import CallSyntax
from mashbox.chat.formats.hermes import call_start
from mashbox.chat.formats.json_call import object_text, to_calls, tool_names
from mashbox.chat.formats.json_text import read_container
from mashbox.chat.formats.reader import AnswerReader, Blocks, Output
from mashbox.chat.types import Tool, ToolChoice
from mashbox.engine.types import Constraint

_OPENER, _ID, _ARGS = "[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"
_NAME = re.compile(r"[^\s\[{]*")

_LIST = CallSyntax(head=call_start, tail="}", first=f"{_OPENER}[", last="]")
_EACH = CallSyntax(head=lambda name: f"{_OPENER}{name}{_ARGS}", tail="")


class Mistral:
    """Reads both ways of writing calls, and the mark before arguments may be missing.

    `each` says which way is asked for in constraints.
    """

    visible: tuple[str, ...] = (_OPENER, _ID, _ARGS)
    openers: tuple[str, ...] = (_OPENER,)
    always = False

    def __init__(self, *, each: bool) -> None:
        self.name = "mistral-args" if each else "mistral"
        self._syntax = _EACH if each else _LIST

    def reader(self, tools: Sequence[Tool]) -> CallReader:
        """See ToolFormat."""
        names = tool_names(tools)

        def block(cursor: Cursor, output: Output) -> Reading[bool]:
            yield from white_space(cursor)
            if not cursor.at < len(cursor.text):
                return False
            read = _list if cursor.peek(1) in "[{" else _named
            return (yield from read(cursor, output, names))

        return AnswerReader(Blocks.of({_OPENER: block}).read)

    def constraint(self, tools: Sequence[Tool], choice: ToolChoice) -> Constraint:
        """See ToolFormat."""
        return self._syntax.constraint(tools, choice)


def _list(cursor: Cursor, output: Output, names: Collection[str]) -> Reading[bool]:
    text = yield from read_container(cursor)
    calls = None if text is None else to_calls(text, names)
    if calls is None:
        return False
    cursor.release()
    for call in calls:
        output.call(call.name, call.arguments)
    return True


def _named(cursor: Cursor, output: Output, names: Collection[str]) -> Reading[bool]:
    name = yield from run_of(cursor, _NAME)
    if name not in names:
        return False
    yield from white_space(cursor)
    if (yield from literal(cursor, _ID)):
        yield from run_of(cursor, _NAME)
    yield from literal(cursor, _ARGS)
    yield from white_space(cursor)
    text = yield from read_container(cursor)
    arguments = None if text is None else object_text(text)
    if arguments is None:
        return False
    cursor.release()
    output.call(name, arguments)
    return True
