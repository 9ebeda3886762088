"""JSON schemas out of the types that the server decodes and encodes, with words added.

Types, ranges and required fields come from the code, so the document cannot say anything else.
Descriptions, defaults and what types cannot tell are written in tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

Schema = dict[str, Any]
Notes = Mapping[str, Schema]
"""What to add to each field of an object, in the order to show them. `WHOLE` stands for the object."""
Table = Mapping[type[msgspec.Struct], Notes]

WHOLE = ""
ANY_VALUE = "x-any-value"
"""Marks a field whose value is never refused, whatever its type: `type` says what clients send."""
REF = "#/components/schemas/"


def ref(name: str) -> Schema:
    """A reference to a named schema."""
    return {"$ref": REF + name}


def note(description: str, **more: Any) -> Schema:
    """Words for a field, and further keywords of its schema."""
    return {"description": description, **more}


def ignored(description: str, kind: str, **more: Any) -> Schema:
    """A field that no type has, since it is not looked at."""
    return {"type": kind, "description": description, ANY_VALUE: True, **more}


def string(description: str, **more: Any) -> Schema:
    """A text."""
    return {"type": "string", "description": description, **more}


def integer(description: str, **more: Any) -> Schema:
    """A whole number."""
    return {"type": "integer", "description": description, **more}


def const(value: str) -> Schema:
    """One text and no other."""
    return {"type": "string", "const": value}


def array(items: Schema, description: str = "", **more: Any) -> Schema:
    """A list."""
    told = {"description": description} if description else {}
    return {"type": "array", "items": items, **told, **more}


def obj(
    description: str, properties: Mapping[str, Schema], optional: Iterable[str] = (), **more: Any
) -> Schema:
    """An object with all of its properties but the `optional` ones required."""
    skipped = set(optional)
    assert skipped <= set(properties)
    required = [name for name in properties if name not in skipped]
    schema: Schema = {"type": "object", "description": description, "properties": dict(properties)}
    return schema | ({"required": required} if required else {}) | more


def nullable(schema: Schema) -> Schema:
    """The schema, or null."""
    if "type" in schema and "enum" not in schema and "const" not in schema:
        kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        return schema | {"type": [*kinds, "null"]}
    description = {"description": schema["description"]} if "description" in schema else {}
    bare = {key: value for key, value in schema.items() if key != "description"}
    return {"anyOf": [bare, {"type": "null"}], **description}


def components(table: Table, names: Mapping[type, str]) -> dict[str, Schema]:
    """The schemas of the table's types and of all they contain, by name.

    `names` renames some. Every field of every type must have a note.
    """
    _, found = msgspec.json.schema_components(list(table), ref_template=REF + "{name}")
    notes = {kind.__name__: rows for kind, rows in table.items()}
    called = {kind.__name__: name for kind, name in names.items()}
    assert found.keys() == notes.keys(), found.keys() ^ notes.keys()
    return {
        called.get(name, name): _renamed(_annotated(schema, notes[name]), called)
        for name, schema in found.items()
    }


def tagged(schema: Schema, *types: str) -> Schema:
    """An object that is told by its `type`."""
    kind = const(types[0]) if len(types) == 1 else string("Which of the two.", enum=list(types))
    required = ["type", *(name for name in schema.get("required", ()) if name != "type")]
    return schema | {"properties": {"type": kind, **schema["properties"]}, "required": required}


def other(description: str, known: Iterable[str]) -> Schema:
    """An object whose `type` is none of the `known` ones."""
    kind = string("Any type that is not named here.", **{"not": {"enum": sorted(known)}})
    return {"type": "object", "description": description, "properties": {"type": kind}, "required": ["type"]}


def _annotated(schema: Schema, notes: Notes) -> Schema:
    fields = {name: simple(field) for name, field in schema.get("properties", {}).items()}
    missing = fields.keys() - notes.keys()
    assert not missing, f"{schema['title']} has no words about {sorted(missing)}"
    properties = {name: fields.get(name, {}) | words for name, words in notes.items() if name != WHOLE}
    whole = {key: value for key, value in schema.items() if key != "title"}
    return whole | {"properties": properties} | notes.get(WHOLE, {})


def simple(schema: Any) -> Any:
    """The same schema with `type` lists for unions of plain types, and without defaults of null."""
    if isinstance(schema, list):
        return [simple(entry) for entry in schema]
    if not isinstance(schema, dict):
        return schema
    plain = {key: simple(value) for key, value in schema.items() if (key, value) != ("default", None)}
    if "enum" in plain:
        plain = {"type": "string"} | plain
    members = plain.get("anyOf", ())
    kinds = [member.get("type") for member in members]
    if not members or None in kinds or any("enum" in member for member in members):
        return plain
    del plain["anyOf"]
    for member in members:
        plain |= member
    return {"type": kinds} | plain | {"type": kinds}


def _renamed(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _renamed(entry, names) for key, entry in value.items()}
    if isinstance(value, list):
        return [_renamed(entry, names) for entry in value]
    if isinstance(value, str) and value.startswith(REF):
        name = value.removeprefix(REF)
        return REF + names.get(name, name)
    return value
