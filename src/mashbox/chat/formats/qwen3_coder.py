"""Qwen3-Coder: tagged parameters.

<tool_call>
<function=NAME>
<parameter=KEY>
VALUE
</parameter>
</function>
</tool_call>
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from mashbox.chat.formats.cursor import (
    Cursor,
    Marks,
    Reading,
    literal,
    literal_or_end,
    one_of,
    run_of,
    white_space,
)
from mashbox.chat.formats.format import CallReader
from mashbox.chat.formats.parameters import ParameterSyntax, read_value
from mashbox.chat.formats.reader import AnswerReader, Blocks, Output
from mashbox.chat.formats.schema_types import object_of
from mashbox.chat.types import Tool, ToolChoice
from mashbox.engine.types import Constraint

_OPENER, _CLOSER = "<tool_call>", "</tool_call>"
_FUNCTION, _FUNCTION_END = "<function=", "</function>"
_PARAMETER = "<parameter="
_PARAMETER_END = Marks("</parameter>")
_UNCLOSED = re.compile(r"(.*)</function>\s*(?:</tool_call>\s*)?", re.DOTALL)
"""The last value of an answer, whose own closer the model forgot."""
_NAME = re.compile(r"[^<>\n]*")

_SYNTAX = ParameterSyntax(
    head=lambda name: f"{_OPENER}\n{_FUNCTION}{name}>\n",
    tail=f"{_FUNCTION_END}\n{_CLOSER}",
    key_head=_PARAMETER,
    key_tail=">\n",
    closer="</parameter>",
    before_closer="\n",
    after_value="\n",
)


class Qwen3Coder:
    """One line break at each end of a value is no part of it.

    What models forget may be missing: the outer tags, where the call begins a line, and the closer of
    the answer's very last value.
    """

    name = "qwen3-coder"
    visible: tuple[str, ...] = (_OPENER, _CLOSER)
    openers: tuple[str, ...] = (_OPENER, _FUNCTION)
    always = False

    def reader(self, tools: Sequence[Tool]) -> CallReader:
        """See ToolFormat."""
        by_name = {tool.name: tool for tool in tools}

        def tagged(cursor: Cursor, output: Output) -> Reading[bool]:
            yield from white_space(cursor)
            if not (yield from literal(cursor, _FUNCTION)):
                return False
            return (yield from _function(cursor, output, by_name))

        def bare(cursor: Cursor, output: Output) -> Reading[bool]:
            return output.at_line_start and (yield from _function(cursor, output, by_name))

        return AnswerReader(Blocks.of({_OPENER: tagged, _FUNCTION: bare}).read)

    def constraint(self, tools: Sequence[Tool], choice: ToolChoice) -> Constraint:
        """See ToolFormat."""
        return _SYNTAX.constraint(tools, choice)


def _function(cursor: Cursor, output: Output, tools: Mapping[str, Tool]) -> Reading[bool]:
    name = (yield from run_of(cursor, _NAME)).strip()
    if name not in tools or not (yield from literal(cursor, ">")):
        return False
    values = yield from _parameters(cursor)
    if values is None:
        return False
    arguments = object_of(tools[name], values)
    cursor.release()
    output.call(name, arguments)
    yield from white_space(cursor)
    if (yield from literal_or_end(cursor, _CLOSER)):
        return True
    output.text(cursor.release())
    return True


def _parameters(cursor: Cursor) -> Reading[dict[str, str] | None]:
    """The values as written, by name, up to the function's end; None if they are malformed."""
    values: dict[str, str] = {}
    while True:
        yield from white_space(cursor)
        mark = yield from one_of(cursor, (_PARAMETER, _FUNCTION_END))
        if mark == _FUNCTION_END:
            return values
        if mark is None:
            return None
        key = yield from run_of(cursor, _NAME)
        if not (yield from literal(cursor, ">")):
            return None
        value = yield from read_value(cursor, _PARAMETER_END, (_PARAMETER, _FUNCTION_END))
        if value.closed:
            values[key.strip()] = _own_text(value.text)
            continue
        last = _UNCLOSED.fullmatch(value.text)
        return None if last is None else {**values, key.strip(): _own_text(last[1])}


def _own_text(value: str) -> str:
    return value.removeprefix("\n").removesuffix("\n")
