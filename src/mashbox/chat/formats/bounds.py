"""Which bounds of a schema a grammar may keep: those that it can follow in time, whatever the answer.

A text that must fit two regular expressions at once has no bound: a step of the answer may then take the
library seconds. So of several bounds of one value one stays, and a schema whose parts must hold together
has none at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Schema = dict[str, Any]

BOUNDS = frozenset(
    {
        *("pattern", "format", "patternProperties", "propertyNames", "multipleOf", "uniqueItems"),
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength"),
        *("minItems", "maxItems", "minProperties", "maxProperties", "contains", "not", "if", "then", "else"),
    }
)
"""Keys that say more of a value than its type and its parts."""
NAMED_SCHEMAS = frozenset({"properties", "$defs", "definitions"})
DATA = frozenset({"const", "enum", "default", "examples"})

_TOGETHER = frozenset({"$ref", "anyOf", "oneOf"})
_HARMLESS = frozenset(
    {
        *("type", "title", "description", "default", "examples", "required", "nullable", "deprecated"),
        *("$defs", "definitions", "$schema", "$id", "$comment", "readOnly", "writeOnly", "discriminator"),
    }
)
"""Keys that may stand beside a reference or alternatives: nothing of them must hold for the same text."""
_LISTED = frozenset({"enum", "const"})
_RANGE = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})
_LENGTHS = frozenset({"minLength", "maxLength"})


def is_joint(schema: Schema) -> bool:
    """Whether several parts of it, or of a schema in it, must hold for the same value."""
    return any(
        "allOf" in part or (not _TOGETHER.isdisjoint(part) and not _can_stand_together(part))
        for part in _parts(schema)
    )


def _can_stand_together(schema: Schema) -> bool:
    others = schema.keys() - _HARMLESS
    return len(others) == 1


def single(schema: Schema) -> Schema:
    """The schema with one bound for each value."""
    dropped = _dropped(schema)
    kept = {key: _single_member(key, value) for key, value in schema.items() if key not in dropped}
    if "patternProperties" in schema:
        kept["additionalProperties"] = True
    return kept


def _dropped(schema: Schema) -> frozenset[str]:
    """The bounds that give way to others."""
    dropped = {"patternProperties", "propertyNames"}
    if not _LISTED.isdisjoint(schema):
        dropped |= BOUNDS
    if "pattern" in schema:
        dropped |= {"format", *_LENGTHS}
    if "format" in schema:
        dropped |= _LENGTHS
    if not _RANGE.isdisjoint(schema):
        dropped.add("multipleOf")
    return frozenset(dropped)


def _single_member(key: str, value: Any) -> Any:
    if key in DATA:
        return value
    if key in NAMED_SCHEMAS and isinstance(value, dict):
        return {name: _single(part) for name, part in value.items()}
    return _single(value)


def _single(value: Any) -> Any:
    if isinstance(value, list):
        return [_single(item) for item in value]
    return single(value) if isinstance(value, dict) else value


def _parts(value: Any) -> Iterator[Schema]:
    """A schema and all that stand in it."""
    if isinstance(value, list):
        for item in value:
            yield from _parts(item)
    elif isinstance(value, dict):
        yield value
        for key, member in value.items():
            if key in NAMED_SCHEMAS and isinstance(member, dict):
                yield from _parts(list(member.values()))
            elif key not in DATA:
                yield from _parts(member)
