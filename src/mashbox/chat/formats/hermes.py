"""Hermes and Qwen: `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from functools import partial

from mashbox.chat.formats.cursor import Cursor, Reading, literal_or_end, next_of, white_space
from mashbox.chat.formats.format import CallReader
from mashbox.chat.formats.grammar import CallSyntax
from mashbox.chat.formats.json_call import to_calls, tool_names
from mashbox.chat.formats.json_text import read_container
from mashbox.chat.formats.reader import AnswerReader, Blocks, Output
from mashbox.chat.types import Tool, ToolChoice
from mashbox.engine.types import Constraint

OPENER = "<tool_call>"
CLOSER = "</tool_call>"


def call_start(name: str) -> str:
    """A call's object up to its arguments."""
    return f'{{"name": {json.dumps(name, ensure_ascii=False)}, "arguments": '


_SYNTAX = CallSyntax(head=lambda name: f"{OPENER}\n{call_start(name)}", tail=f"}}\n{CLOSER}")


class Hermes:
    """White space may stand anywhere, `parameters` for `arguments`, a list for a call, and the last closer
    may be missing."""

    name = "hermes"
    visible: tuple[str, ...] = (OPENER, CLOSER)
    openers: tuple[str, ...] = (OPENER,)
    always = False

    def reader(self, tools: Sequence[Tool]) -> CallReader:
        """See ToolFormat."""
        return tagged_reader(tool_names(tools))

    def constraint(self, tools: Sequence[Tool], choice: ToolChoice) -> Constraint:
        """See ToolFormat."""
        return _SYNTAX.constraint(tools, choice)


def tagged_reader(names: Collection[str]) -> CallReader:
    """A reader of calls in tags."""
    return AnswerReader(Blocks.of({OPENER: partial(_block, names=names)}).read)


def _block(cursor: Cursor, output: Output, names: Collection[str]) -> Reading[bool]:
    yield from white_space(cursor)
    text = yield from read_container(cursor)
    if text is None:
        return False
    yield from white_space(cursor)
    closed = yield from literal_or_end(cursor, CLOSER)
    if not closed and (yield from next_of(cursor, (OPENER,))) is None:
        return False
    calls = to_calls(text, names)
    if calls is None:
        return False
    cursor.release()
    for call in calls:
        output.call(call.name, call.arguments)
    return True
