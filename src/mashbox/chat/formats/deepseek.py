"""DeepSeek, between its own marks: V3 and R1 with fenced JSON, V3.1 with the bare object.

function<sep>NAME, a line break and a ```json block      V3, R1
NAME<sep>{...}                                           V3.1
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from functools import partial

from mashbox.chat.formats.cursor import Cursor, Reading, literal, literal_or_end, one_of, run_of, white_space
from mashbox.chat.formats.format import CallReader
from mashbox.chat.formats.grammar import CallSyntax
from mashbox.chat.formats.json_call import object_text, tool_names
from mashbox.chat.formats.json_text import read_container
from mashbox.chat.formats.reader import AnswerReader, Blocks, Output
from mashbox.chat.types import Call, Tool, ToolChoice
from mashbox.engine.types import Constraint

# The bars are fullwidth and the low lines block characters.
BAR, LOW = "\N{FULLWIDTH VERTICAL LINE}", "\N{LOWER ONE EIGHTH BLOCK}"
_ALL_BEGIN, _ALL_END = (f"<{BAR}tool{LOW}calls{LOW}{place}{BAR}>" for place in ("begin", "end"))
_BEGIN, _END = (f"<{BAR}tool{LOW}call{LOW}{place}{BAR}>" for place in ("begin", "end"))
_SEPARATOR = f"<{BAR}tool{LOW}sep{BAR}>"
_NAME = re.compile(r"[^\s<{`]*")

_FENCED = CallSyntax(
    head=lambda name: f"{_BEGIN}function{_SEPARATOR}{name}\n```json\n",
    tail=f"\n```{_END}",
    first=_ALL_BEGIN,
    last=_ALL_END,
)
_BARE = CallSyntax(
    head=lambda name: f"{_BEGIN}{name}{_SEPARATOR}", tail=_END, first=_ALL_BEGIN, last=_ALL_END
)


class DeepSeek:
    """Reads both ways of writing calls; `fenced` says which one is asked for in constraints."""

    visible: tuple[str, ...] = (_ALL_BEGIN, _BEGIN, _SEPARATOR, _END, _ALL_END)
    openers: tuple[str, ...] = (_ALL_BEGIN, _BEGIN)
    always = False

    def __init__(self, *, fenced: bool) -> None:
        self.name = "deepseek-v3" if fenced else "deepseek-v3.1"
        self._syntax = _FENCED if fenced else _BARE

    def reader(self, tools: Sequence[Tool]) -> CallReader:
        """See ToolFormat."""
        names = tool_names(tools)
        readers = {mark: partial(_calls, names=names, mark=mark) for mark in (_ALL_BEGIN, _BEGIN)}
        return AnswerReader(Blocks.of(readers).read)

    def constraint(self, tools: Sequence[Tool], choice: ToolChoice) -> Constraint:
        """See ToolFormat."""
        return self._syntax.constraint(tools, choice)


def _calls(cursor: Cursor, output: Output, names: Collection[str], mark: str | None) -> Reading[bool]:
    """Read calls up to the end of all; `mark` has been read. Each goes out when it is complete."""
    complete = False
    while mark != _ALL_END:
        if mark == _BEGIN:
            call = yield from _call(cursor, names)
            if call is None:
                return False
            cursor.release()
            output.call(call.name, call.arguments)
            complete = True
        yield from white_space(cursor)
        mark = yield from one_of(cursor, (_BEGIN, _ALL_END))
        if mark is None:
            return complete and cursor.at == len(cursor.text)
    return complete


def _call(cursor: Cursor, names: Collection[str]) -> Reading[Call | None]:
    yield from white_space(cursor)
    name = yield from run_of(cursor, _NAME)
    if not (yield from literal(cursor, _SEPARATOR)):
        return None
    later_name = yield from run_of(cursor, _NAME)
    yield from white_space(cursor)
    fenced = yield from literal(cursor, "```")
    if fenced:
        yield from literal(cursor, "json")
        yield from white_space(cursor)
    text = yield from read_container(cursor)
    arguments = None if text is None else object_text(text)
    yield from white_space(cursor)
    if arguments is None or (fenced and not (yield from literal_or_end(cursor, "```"))):
        return None
    yield from white_space(cursor)
    name = later_name or name
    if not (yield from literal_or_end(cursor, _END)) or name not in names:
        return None
    return Call(name, arguments)
