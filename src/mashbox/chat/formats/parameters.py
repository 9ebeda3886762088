"""Calls whose arguments are tagged text, one after the other: how to read them, and their grammars."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from mashbox.chat.formats.bounds import Schema
from mashbox.chat.formats.cursor import Cursor, Marks, Reading, next_of, until, white_space
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
from mashbox.chat.formats.schema_types import possible_types, properties_of
from mashbox.chat.types import Tool, ToolChoice
from mashbox.engine.types import Constraint

_LINES = re.compile(r"\n|[^\n]+")
_ANY_KEY = r"/[A-Za-z0-9_.\-]+/"


@dataclass(frozen=True, slots=True)
class Value:
    """A value as written. Not `closed`: the answer ended without the closer, and this is all there was."""

    text: str
    closed: bool


def read_value(cursor: Cursor, closer: Marks, after: tuple[str, ...]) -> Reading[Value]:
    """Step over a value and the closer that ends it.

    A closer ends the value only where one of `after` follows, with nothing but white space between.
    """
    pieces: list[str] = []
    while True:
        pieces.append((yield from until(cursor, closer)))
        if cursor.at == len(cursor.text):
            return Value("".join(pieces), closed=False)
        mark = cursor.take(closer.longest)
        space = yield from white_space(cursor)
        if (yield from next_of(cursor, after)) is not None:
            return Value("".join(pieces), closed=True)
        pieces += [mark, space]


@dataclass(frozen=True, slots=True)
class ParameterSyntax:
    """How a family writes a call: text before and after, and around each argument's name and value."""

    head: Callable[[str], str]
    """From a call's start to its first argument, by the tool's name."""
    tail: str
    key_head: str
    key_tail: str
    closer: str
    """Ends a value; no text value holds it."""
    before_closer: str
    """White space that stands between a value and its closer."""
    after_value: str
    loose: bool = False
    """Each line break may be left out."""

    def constraint(self, tools: Sequence[Tool], choice: ToolChoice) -> Constraint:
        """See ToolFormat."""
        return ladder(self._grammar, chosen(tools, choice))

    def _grammar(self, tools: Sequence[Tool], soften: Soften) -> str:
        rules = Rules()
        closer = re.escape(self.closer).replace("/", r"\/")
        text = rules.add("text", f"/(?s:.*){closer}/", options="[lazy]")
        for tool in tools:
            arguments = self._arguments(rules, text, soften(tool.parameters))
            rules.add(
                "call", sequence(self._literal(self.head(tool.name)), arguments, self._literal(self.tail))
            )
        return rules.text(one_of(rules.names("call")))

    def _literal(self, text: str) -> str:
        """The rule of the family's own text."""
        if not self.loose:
            return quote(text)
        return sequence(
            *(f"{quote(line)}?" if line == "\n" else quote(line) for line in _LINES.findall(text))
        )

    def _arguments(self, rules: Rules, text: str, schema: Schema) -> str:
        properties = properties_of(schema)
        if properties is None:
            key = sequence(self._literal(self.key_head), _ANY_KEY, self._literal(self.key_tail))
            return f"({sequence(key, text, self._literal(self.after_value))})*"
        required = required_of(schema)
        parts = []
        for name, value in properties.items():
            key = sequence(quote(f"{self.key_head}{name}"), self._literal(self.key_tail))
            rule = rules.add("argument", sequence(key, self._value(rules, text, value, schema)))
            parts.append(rule if name in required else f"{rule}?")
        return sequence(*parts)

    def _value(self, rules: Rules, text: str, value: Any, schema: Schema) -> str:
        end = self._literal(f"{self.before_closer}{self.closer}{self.after_value}")
        listed = _listed_values(value)
        if listed:
            return sequence(f"({' | '.join(map(quote, listed))})", end)
        types = possible_types(value, schema)
        if not types or "string" in types:
            return sequence(text, self._literal(self.after_value))
        return sequence(rules.add("json", value_rule(value, schema)), end)


def required_of(schema: Schema) -> Sequence[str]:
    """The names of the arguments that must be there."""
    required = schema.get("required")
    return required if isinstance(required, list) else ()


def value_rule(value: Any, schema: Schema) -> str:
    """The JSON texts of one argument; what the whole schema defines is at hand for its references."""
    definitions: Schema = {key: schema[key] for key in ("$defs", "definitions") if key in schema}
    return schema_rule({**definitions, **value} if isinstance(value, dict) else {})


def _listed_values(schema: Any) -> list[str]:
    """A schema's few allowed values as the model writes them."""
    if not isinstance(schema, dict):
        return []
    values = schema.get("enum", [schema["const"]] if "const" in schema else [])
    if not isinstance(values, list):
        return []
    return [value if isinstance(value, str) else json.dumps(value) for value in values]
