"""What type an argument without quotes has: its schema tells."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from mashbox.chat.formats import json_text
from mashbox.chat.types import Tool

_MAX_STEPS = 50
"""Most schemas looked at for one value; references may go in circles."""
_INTEGER = re.compile(r"-?(0|[1-9][0-9]*)(\.0+)?")
_PYTHON_WORDS = {"True": "true", "False": "false", "None": "null"}
_TYPE_NAMES: tuple[tuple[type, str], ...] = (
    *((bool, "boolean"), (int, "integer"), (float, "number"), (str, "string")),
    *((list, "array"), (dict, "object"), (type(None), "null")),
)


def object_of(tool: Tool, values: dict[str, str]) -> str:
    """The JSON text of arguments whose values are as the model wrote them, by name."""
    properties = properties_of(tool.parameters) or {}
    members = [
        f"{json_text.write(name)}: {typed(raw, possible_types(properties.get(name), tool.parameters))}"
        for name, raw in values.items()
    ]
    return "{" + ", ".join(members) + "}"


def properties_of(schema: dict[str, Any]) -> dict[str, Any] | None:
    """An object schema's properties; None if it does not say."""
    properties = schema.get("properties")
    return properties if isinstance(properties, dict) else None


def possible_types(schema: Any, root: dict[str, Any]) -> Sequence[str]:
    """The types a schema names, in order; none if it names none. References are looked up in `root`."""
    found: dict[str, None] = {}
    waiting, steps = [schema], 0
    while waiting and steps < _MAX_STEPS:
        steps += 1
        current = waiting.pop(0)
        if not isinstance(current, dict):
            continue
        found.update(dict.fromkeys(_named_types(current)))
        for key in ("anyOf", "oneOf", "allOf"):
            if isinstance(current.get(key), list):
                waiting += current[key]
        if "$ref" in current:
            waiting.append(_resolve(current["$ref"], root))
    return tuple(found)


def _named_types(schema: dict[str, Any]) -> list[str]:
    declared = schema.get("type")
    if isinstance(declared, str):
        return [declared]
    if isinstance(declared, list):
        return [name for name in declared if isinstance(name, str)]
    values = schema.get("enum", [schema["const"]] if "const" in schema else [])
    values = values if isinstance(values, list) else []
    return [next(name for kind, name in _TYPE_NAMES if isinstance(value, kind)) for value in values]


def _resolve(reference: Any, root: dict[str, Any]) -> Any:
    if not isinstance(reference, str) or not reference.startswith("#"):
        return None
    current: Any = root
    for step in reference[1:].split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        current = current.get(key) if isinstance(current, dict) else None
    return current


def typed(raw: str, types: Sequence[str]) -> str:
    """The JSON text of a value written without quotes: of the first type that it fits, else a string.

    A null goes before a string. Without types it is a string unless it is an object or array.
    """
    text = raw.strip()
    if "null" in types and text in ("null", "None"):
        return "null"
    for name in types or ("object", "array"):
        if name == "string":
            break
        if (fitting := _fit(text, name)) is not None:
            return fitting
    return json_text.write(raw)


def _fit(text: str, type_name: str) -> str | None:
    """`text` as JSON if it is of that type."""
    if type_name == "boolean":
        word = _PYTHON_WORDS.get(text, text)
        return word if word in ("true", "false") else None
    if type_name == "integer":
        return text if _INTEGER.fullmatch(text) else None
    try:
        value = json_text.parse(text)
    except ValueError:
        return None
    if type_name == "number":
        return text if isinstance(value, float) else None
    wanted = {"object": dict, "array": list}.get(type_name)
    return text if wanted is not None and isinstance(value, wanted) else None
