"""GLM: `<tool_call>NAME`, then `<arg_key>KEY</arg_key><arg_value>VALUE</arg_value>` each, `</tool_call>`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial

from mashbox.chat.formats.cursor import Cursor, Marks, Reading, literal, one_of, run_of, white_space
from mashbox.chat.formats.format import CallReader
from mashbox.chat.formats.parameters import ParameterSyntax, read_value
from mashbox.chat.formats.reader import AnswerReader, Blocks, Output
from mashbox.chat.formats.schema_types import object_of
from mashbox.chat.types import Tool, ToolChoice
from mashbox.engine.types import Constraint

_OPENER, _CLOSER = "<tool_call>", "</tool_call>"
_KEY, _KEY_END = "<arg_key>", "</arg_key>"
_VALUE, _VALUE_END = "<arg_value>", "</arg_value>"
_VALUE_MARK = Marks(_VALUE_END)
_NAME = re.compile(r"[^\s<]*")
_KEY_TEXT = re.compile(r"[^<\n]*")

_SYNTAX = ParameterSyntax(
    head=lambda name: f"{_OPENER}{name}\n",
    tail=_CLOSER,
    key_head=_KEY,
    key_tail=f"{_KEY_END}\n{_VALUE}",
    closer=_VALUE_END,
    before_closer="",
    after_value="\n",
    loose=True,  # newer models write none
)


class Glm:
    """White space may stand between tags; a value's own is part of it."""

    name = "glm"
    visible: tuple[str, ...] = (_OPENER, _CLOSER, _KEY, _KEY_END, _VALUE, _VALUE_END)
    openers: tuple[str, ...] = (_OPENER,)
    always = False

    def reader(self, tools: Sequence[Tool]) -> CallReader:
        """See ToolFormat."""
        by_name = {tool.name: tool for tool in tools}
        return AnswerReader(Blocks.of({_OPENER: partial(_block, tools=by_name)}).read)

    def constraint(self, tools: Sequence[Tool], choice: ToolChoice) -> Constraint:
        """See ToolFormat."""
        return _SYNTAX.constraint(tools, choice)


def _block(cursor: Cursor, output: Output, tools: Mapping[str, Tool]) -> Reading[bool]:
    yield from white_space(cursor)
    name = yield from run_of(cursor, _NAME)
    if name not in tools:
        return False
    values = yield from _arguments(cursor)
    if values is None:
        return False
    arguments = object_of(tools[name], values)
    cursor.release()
    output.call(name, arguments)
    return True


def _arguments(cursor: Cursor) -> Reading[dict[str, str] | None]:
    """The values as written, by name, up to the call's end; None if they are malformed."""
    values: dict[str, str] = {}
    while True:
        yield from white_space(cursor)
        mark = yield from one_of(cursor, (_KEY, _CLOSER))
        if mark == _CLOSER:
            return values
        if mark is None:
            return None
        key = yield from run_of(cursor, _KEY_TEXT)
        if not (yield from literal(cursor, _KEY_END)):
            return None
        yield from white_space(cursor)
        if not (yield from literal(cursor, _VALUE)):
            return None
        value = yield from read_value(cursor, _VALUE_MARK, (_KEY, _CLOSER))
        if not value.closed:
            return None
        values[key.strip()] = value.text
