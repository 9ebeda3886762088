"""LFM2: `<|tool_call_start|>[name(key="value"), ...]<|tool_call_end|>`, or the calls as JSON objects."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial

from mashbox.chat.formats.bounds import Schema
from mashbox.chat.formats.cursor import Cursor, Reading, literal_or_end, white_space
from mashbox.chat.formats.format import CallReader
from mashbox.chat.formats.grammar import (
    Rules,
    Soften,
    chosen,
    ladder,
    one_of,
    quote,
    schema_rule,
    sequence,
)
from mashbox.chat.formats.json_call import to_calls, tool_names
from mashbox.chat.formats.json_text import read_container
from mashbox.chat.formats.parameters import required_of, value_rule
from mashbox.chat.formats.pythonic import PYTHON, read_calls
from mashbox.chat.formats.reader import AnswerReader, Blocks, Output
from mashbox.chat.formats.schema_types import properties_of
from mashbox.chat.types import Call, Tool, ToolChoice
from mashbox.engine.types import Constraint

_OPENER, _CLOSER = "<|tool_call_start|>", "<|tool_call_end|>"


class Lfm2:
    """JSON's words for true, false and null count as Python's."""

    name = "lfm2"
    visible: tuple[str, ...] = (_OPENER, _CLOSER)
    openers: tuple[str, ...] = (_OPENER,)
    always = False

    def reader(self, tools: Sequence[Tool]) -> CallReader:
        """See ToolFormat."""
        return AnswerReader(Blocks.of({_OPENER: partial(_block, names=tool_names(tools))}).read)

    def constraint(self, tools: Sequence[Tool], choice: ToolChoice) -> Constraint:
        """See ToolFormat."""
        return ladder(_grammar, chosen(tools, choice))


def _block(cursor: Cursor, output: Output, names: Collection[str]) -> Reading[bool]:
    yield from white_space(cursor)
    text = yield from read_container(cursor, PYTHON)
    calls = None if text is None else _calls(text, names)
    yield from white_space(cursor)
    if calls is None or not (yield from literal_or_end(cursor, _CLOSER)):
        return False
    cursor.release()
    for call in calls:
        output.call(call.name, call.arguments)
    return True


def _calls(text: str, names: Collection[str]) -> Sequence[Call] | None:
    """The calls, if each is of one of `names`."""
    if text.startswith("{") or text[1:].lstrip().startswith("{"):
        return to_calls(text, names)
    try:
        calls = [Call(name, arguments) for name, arguments in read_calls(text)]
    except ValueError:
        return None
    return calls if calls and all(call.name in names for call in calls) else None


def _grammar(tools: Sequence[Tool], soften: Soften) -> str:
    rules = Rules()
    for tool in tools:
        arguments = _arguments(rules, soften(tool.parameters))
        rules.add("call", sequence(quote(f"{tool.name}("), arguments, quote(")")))
    call = one_of(rules.names("call"))
    return rules.text(sequence(quote(f"{_OPENER}["), call, quote(f"]{_CLOSER}")))


def _arguments(rules: Rules, schema: Schema) -> str:
    properties = properties_of(schema)
    if properties is None:
        one = sequence("/[A-Za-z_][A-Za-z0-9_]*/", quote("="), rules.add("json", schema_rule({})))
        return f'({one} (", " {one})*)?'
    first = later = ""  # the rest of the list, with and without an argument before it
    for name, value in reversed(properties.items()):
        one = sequence(quote(f"{name}="), rules.add("json", value_rule(value, schema)))
        begun = sequence(one, later)
        first_rest = begun if name in required_of(schema) else _either(begun, first)
        more = sequence(quote(", "), one, later)
        later = rules.add("later", more if name in required_of(schema) else _either(more, later))
        first = rules.add("first", first_rest)
    return first


def _either(one: str, other: str) -> str:
    return f"{one} | {other}" if other else f"({one})?"
