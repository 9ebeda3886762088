"""A JSON schema in the few words that every chat template understands."""

from __future__ import annotations

from typing import Any

_NAMES = ("object", "array", "string", "integer", "number", "boolean")


_DEEPEST = 32


def simple_schema(schema: Any, depth: int = 0) -> dict[str, Any]:
    """The schema with one plain type everywhere; it only tells the model what to write.

    Of several types or alternatives the first one that is not null is kept; what lies deeper than
    32 levels is left out.
    """
    if not isinstance(schema, dict) or depth > _DEEPEST:  # true and false are schemas, too
        return {"type": "string"}
    chosen = _chosen(schema)
    simple = {key: value for key, value in chosen.items() if key not in ("anyOf", "oneOf", "allOf", "$ref")}
    simple["type"] = kind = _type(chosen)
    if kind == "object":
        properties = chosen.get("properties")
        known = properties if isinstance(properties, dict) else {}
        simple["properties"] = {
            name: {"description": "", **simple_schema(value, depth + 1)} for name, value in known.items()
        }
    if kind == "array":
        simple["items"] = simple_schema(chosen.get("items"), depth + 1)
    return simple


def _chosen(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema together with the first of its alternatives."""
    for key in ("anyOf", "oneOf", "allOf"):
        options = schema.get(key)
        for option in options if isinstance(options, list) else ():
            if isinstance(option, dict) and option.get("type") != "null":
                return {**option, **{name: value for name, value in schema.items() if name != key}}
    return schema


def _type(schema: dict[str, Any]) -> str:
    given = schema.get("type")
    names = given if isinstance(given, list) else [given]
    if (known := next((name for name in names if name in _NAMES), None)) is not None:
        return str(known)
    if "properties" in schema:
        return "object"
    return "array" if "items" in schema else "string"
