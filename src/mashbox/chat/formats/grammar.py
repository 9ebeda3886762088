"""llguidance grammars (a dialect of Lark) of answers that are nothing but calls.

Control tokens are ordinary text in them: the engine's vocabulary has them as their literals.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from mashbox.chat.formats.bounds import BOUNDS, DATA, NAMED_SCHEMAS, Schema, is_joint, single
from mashbox.chat.types import Tool, ToolChoice
from mashbox.engine.types import Constraint

_JSON_OPTIONS = {
    "lenient": True,  # keywords that are not supported are passed over
    "whitespace_pattern": r"[ \n\t]{1,64}",  # bounded: a model must not write white space for ever
}
_LISTS = {"enum", "anyOf", "oneOf", "allOf"}
_TYPES = {"object", "array", "string", "integer", "number", "boolean", "null"}

MOST_NAMED = 5
"""Tools that a message names."""

Soften = Callable[[Schema], Schema]


@dataclass(frozen=True, slots=True)
class CallSyntax:
    """How a family writes calls with JSON arguments: text around the calls, and around the arguments."""

    head: Callable[[str], str]
    """From a call's start to its arguments, by the tool's name."""
    tail: str
    first: str = ""
    last: str = ""
    before: str = ""
    """What may stand before everything."""

    def constraint(self, tools: Sequence[Tool], choice: ToolChoice) -> Constraint:
        """See ToolFormat."""
        return ladder(self._grammar, chosen(tools, choice))

    def _grammar(self, tools: Sequence[Tool], soften: Soften) -> str:
        rules = Rules()
        for tool in tools:
            arguments = rules.add("args", schema_rule(soften(tool.parameters)))
            rules.add("call", sequence(quote(self.head(tool.name)), arguments, quote(self.tail)))
        body = one_of(rules.names("call"))
        before = f"{quote(self.before)}?" if self.before else ""
        return rules.text(sequence(before, quote(self.first), body, quote(self.last)))


def chosen(tools: Sequence[Tool], choice: ToolChoice) -> Sequence[Tool]:
    """The tools that `choice` leaves to call."""
    found = [tool for tool in tools if choice.name in (None, tool.name)]
    assert found, "a call is required of a tool that is not there"
    return found


def ladder(grammar: Callable[[Sequence[Tool], Soften], str], tools: Sequence[Tool]) -> Constraint:
    """`grammar` with the schemas and what bounds can be kept, without bounds, and with any object."""
    steps: tuple[Soften, ...] = (
        lambda schema: as_object(bounded(schema)),
        lambda schema: as_object(softened(schema)),
        any_object,
    )
    texts = []
    for soften in steps:
        with suppress(RecursionError):  # the library takes fewer levels
            texts.append(grammar(tools, soften))
    return Constraint(tuple(dict.fromkeys(texts)), _calls_of([tool.name for tool in tools]))


def _calls_of(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"calls of {', '.join(map(repr, names[:MOST_NAMED]))}{more}"


def as_object(schema: Schema) -> Schema:
    """The schema with what arguments always are made plain."""
    return {**schema, "type": "object"}


def any_object(schema: Schema) -> Schema:
    """The schema of any object."""
    return {"type": "object"}


def bounded(schema: Schema) -> Schema:
    """A schema with the bounds that a grammar can follow in time; see `bounds.py`."""
    return softened(schema) if is_joint(schema) else single(schema)


def softened(schema: Schema) -> Schema:
    """A schema without what most often cannot be compiled: patterns, bounds, far references, mistakes.

    All tools of a request share one grammar, so one tool's mistake must not cost the others their schemas.
    """
    return {
        key: _soft_member(key, value, schema) for key, value in schema.items() if _stays(key, value, schema)
    }


def _soft(schema: Any, root: Schema) -> Any:
    if isinstance(schema, list):
        return [_soft(item, root) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {key: _soft_member(key, value, root) for key, value in schema.items() if _stays(key, value, root)}


def _stays(key: str, value: Any, root: Schema) -> bool:
    if key == "type":
        names = value if isinstance(value, list) else [value]
        return bool(names) and all(isinstance(name, str) and name in _TYPES for name in names)
    if key == "$ref":
        return _leads_somewhere(value, root)
    if key in NAMED_SCHEMAS:
        return isinstance(value, dict)
    if key in _LISTS:
        return isinstance(value, list) and bool(value)
    if key == "required":
        return isinstance(value, list) and all(isinstance(name, str) for name in value)
    return key not in BOUNDS


def _leads_somewhere(reference: Any, root: Any) -> bool:
    """Whether a reference leads to a place in its own schema."""
    if not isinstance(reference, str) or not reference.startswith("#"):
        return False
    for step in filter(None, reference[1:].split("/")):
        name = unquote(step).replace("~1", "/").replace("~0", "~")
        if not isinstance(root, dict) or name not in root:
            return False
        root = root[name]
    return True


def _soft_member(key: str, value: Any, root: Schema) -> Any:
    if key in DATA:
        return value
    if key in NAMED_SCHEMAS:
        return {
            name: _soft(schema, root) for name, schema in value.items() if isinstance(schema, dict | bool)
        }
    return _soft(value, root)


def schema_rule(schema: Mapping[str, Any]) -> str:
    """The JSON texts that a schema allows."""
    return f"%json {json.dumps({**schema, 'x-guidance': _JSON_OPTIONS})}"


def quote(text: str) -> str:
    """`text` as a literal; nothing at all if it is empty."""
    return json.dumps(text) if text else ""


def sequence(*parts: str) -> str:
    """One part after the other; empty ones are left out."""
    return " ".join(part for part in parts if part)


def one_of(calls: Iterable[str]) -> str:
    """One call: small models that may make several go on for ever."""
    return f"({' | '.join(calls)})"


class Rules:
    """Collects a grammar's rules and gives them names."""

    def __init__(self) -> None:
        self._rules: list[tuple[str, str]] = []
        self._counts: dict[str, int] = {}

    def add(self, kind: str, body: str, *, options: str = "") -> str:
        """A new rule's name. `options` are llguidance's, in brackets."""
        count = self._counts.get(kind, 0)
        self._counts[kind] = count + 1
        name = f"{kind}_{count}"
        self._rules.append((f"{name}{options}", body))
        return name

    def names(self, kind: str) -> list[str]:
        """The names of all rules of a kind."""
        return [f"{kind}_{i}" for i in range(self._counts.get(kind, 0))]

    def text(self, start: str) -> str:
        """The whole grammar."""
        return "\n".join(f"{name}: {body}" for name, body in [("start", start), *self._rules])
