"""Schemas that clients could send to keep a grammar library busy, or to break it."""

from __future__ import annotations

import random
from typing import Any

from mashbox.chat.types import Tool

Schema = dict[str, Any]
_CHANCE = random.Random(5)


def _of(**properties: Any) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _pattern(pattern: str) -> Schema:
    return _of(a={"type": "string", "pattern": pattern})


def _nested(depth: int) -> Schema:
    schema: Schema = {"type": "string"}
    for _ in range(depth):
        schema = _of(a=schema)
    return schema


def _chain(length: int, key: str) -> Schema:
    """Definitions that each name the next one twice."""
    chain: dict[str, Any] = {
        f"d{n}": {key: [{"$ref": f"#/$defs/d{n + 1}"}, {"$ref": f"#/$defs/d{n + 1}"}]} for n in range(length)
    }
    return {**_of(a={"$ref": "#/$defs/d0"}), "$defs": {**chain, f"d{length}": {"type": "string"}}}


def _loop(*keys: str) -> Schema:
    names = [f"#/$defs/{n}" for n in range(len(keys))]
    loop = {str(n): {key: [{"$ref": names[n - 1]}]} for n, key in enumerate(keys)}
    return {**_of(a={"$ref": names[0]}), "$defs": loop}


_WORDS = [f"{_CHANCE.getrandbits(60):x}" for _ in range(20_000)]
SCHEMAS: dict[str, Schema] = {
    "nested counts": _pattern("(a{1,1000}){1,1000}"),
    "counts three deep": _pattern("^((a{1,100}){1,100}){1,100}$"),
    "counts with choices": _pattern("^(([ab]{1,50}c?){1,50}d?){1,50}$"),
    "one large count": _pattern("^a{1000000000}$"),
    "many states": _pattern("^(a|b)*a(a|b){200}$"),
    "many states twice": _pattern(".*a.{300}b.{300}c"),
    "a choice of words": _pattern("|".join(_WORDS)),
    "letters of all languages": _pattern(r"(?i)^[\p{L}]{500}(\p{Greek}|\p{Cyrillic}){500}$"),
    "look-ahead": _pattern("^(?=.*a)(?!.*c).{8,64}$"),
    "look-behind": _pattern("(?<=a)b"),
    "back reference": _pattern(r"(a)\1"),
    "many patterns at once": _of(
        a={"type": "string", "allOf": [{"pattern": f"a.{{{n}}}b"} for n in range(1, 30)]}
    ),
    "patterns that hide": _of(
        a={"type": "string", "allOf": [{"pattern": f"^(a.*|b.*c.{{{n}}}q)$"} for n in range(20)]}
    ),
    "pattern and length": _of(a={"type": "string", "pattern": "^(x.*|y(a|b)*a(a|b){40}c)$", "maxLength": 35}),
    "listed and pattern": _of(
        a={"enum": ["a" * 30 + str(n) for n in range(3000)], "pattern": "^(a|b)*a(a|b){20}.*1$"}
    ),
    "least length": _of(a={"type": "string", "minLength": 10**9}),
    "lengths": _of(a={"type": "string", "minLength": 10**6, "maxLength": 10**9}),
    "least items": _of(a={"type": "array", "items": {"type": "integer"}, "minItems": 10**9}),
    "items by place": _of(a={"type": "array", "prefixItems": [{"type": "integer"}] * 20_000}),
    "multiples of several": _of(a={"type": "integer", "allOf": [{"multipleOf": n} for n in (97, 101, 103)]}),
    "multiples of a lot": _of(a={"type": "integer", "multipleOf": 982451653}),
    "multiples of little": _of(a={"type": "number", "multipleOf": 1e-300}),
    "multiples of nothing": _of(a={"type": "number", "multipleOf": 0}),
    "a wide range": _of(a={"type": "number", "minimum": -1e308, "maximum": 1e308}),
    "a wider range": _of(a={"type": "integer", "minimum": -(10**300), "maximum": 10**300}),
    "a long list": _of(a={"enum": _WORDS}),
    "a long list of numbers": _of(a={"enum": list(range(100_000))}),
    "a long list of objects": _of(a={"enum": [{"a": [n] * 10} for n in range(10_000)]}),
    "a long text": _of(a={"const": "ab" * 300_000}),
    "wide": _of(**{f"p{n}": {"type": "string"} for n in range(5000)}),
    "wide and optional": {
        "type": "object",
        "properties": {f"p{n}": {"type": "string"} for n in range(10_000)},
    },
    "patterns of names": {
        "type": "object",
        "patternProperties": {f"a.{{{n}}}b": {"type": "string"} for n in range(60)},
    },
    "deep": _nested(60),
    "deeper": _nested(200),
    "alternatives": _of(a={"anyOf": [_of(**{f"k{n}": {"type": "string"}}) for n in range(300)]}),
    "products": _of(
        a={"allOf": [{"anyOf": [_of(**{f"a{n}": {}}), _of(**{f"b{n}": {}})]} for n in range(24)]}
    ),
    "doubling references": _chain(30, "anyOf"),
    "doubling references that all count": _chain(30, "allOf"),
    "a loop": _loop("anyOf"),
    "a loop of two": _loop("allOf", "anyOf"),
    "an object in itself": {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]},
    "a megabyte": _of(
        **{
            f"p{n}": {"description": "d" * 400, "type": "string", "pattern": f"^[a-z{n}]+$"}
            for n in range(1800)
        }
    ),
    "its own options": {"type": "object", "x-guidance": {"whitespace_pattern": "(a|b)*a(a|b){50}"}},
}
ATTACKS: dict[str, list[Tool]] = {name: [Tool("f", "", schema)] for name, schema in SCHEMAS.items()} | {
    "two thousand tools": [Tool(f"tool_{n}", "", _of(a={"type": "string"}, b={})) for n in range(2000)],
    "many patterns in many tools": [
        Tool(
            f"tool_{n}", "", _of(**{f"p{m}": {"type": "string", "pattern": f"^[a-z{m}]+$"} for m in range(8)})
        )
        for n in range(2000)
    ],
}
