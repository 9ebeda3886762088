"""Reads an OpenAPI document as the tables are written."""

from __future__ import annotations

from typing import Any

from jsonschema import Draft202012Validator

REF = "#/components/schemas/"
NAMES = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}

Document = dict[str, Any]
Schema = dict[str, Any]


def operation(document: Document, route: str) -> dict[str, Any]:
    method, path = route.split()
    found: dict[str, Any] = document["paths"][path][method.lower()]
    return found


def resolve(document: Document, value: dict[str, Any]) -> dict[str, Any]:
    """What a reference leads to, at last."""
    while "$ref" in value:
        found: Any = document
        for step in value["$ref"].removeprefix("#/").split("/"):
            found = found[step]
        value = found
    return value


def body_schema(document: Document, route: str) -> Schema:
    return resolve(
        document, operation(document, route)["requestBody"]["content"]["application/json"]["schema"]
    )


def object_schema(document: Document, place: str) -> Schema:
    """The object that a row's place names."""
    if place.startswith("POST "):
        return body_schema(document, place)
    found: Schema = document["components"]["schemas"][place]
    return found


def kinds(document: Document, schema: Schema) -> set[str]:
    """The types a schema allows; a reference gives its name, too."""
    found = {schema["$ref"].removeprefix(REF)} if "$ref" in schema else set()
    schema = resolve(document, schema)
    types = schema.get("type", [])
    found |= {types} if isinstance(types, str) else set(types)
    for member in (*schema.get("anyOf", ()), *schema.get("oneOf", ()), *schema.get("allOf", ())):
        found |= kinds(document, member)
    return found | {NAMES[type(value)] for value in (*schema.get("enum", ()), schema.get("const", ""))[:-1]}


def items(document: Document, schema: Schema) -> Schema:
    """What the entries of a list are."""
    schema = resolve(document, schema)
    candidates = [schema, *(resolve(document, member) for member in schema.get("anyOf", ()))]
    found: Schema = next(one["items"] for one in candidates if "items" in one)
    return found


def agrees(document: Document, kind: str, schema: Schema) -> bool:
    """Whether a schema allows what a row's type says, and nothing else.

    Null does not count: in a request it is the same as absent, and an answer may have it less often.
    """
    wanted, actual = set(kind.split(" or ")) - {"null"}, kinds(document, schema) - {"null"}
    bases = {word.partition(" of ")[0] for word in wanted}
    inner = {word.partition(" of ")[2] for word in wanted} - {""}
    if inner and not inner <= kinds(document, items(document, schema)):
        return False
    if any(base[0].isupper() for base in bases):
        return bases <= actual
    return actual & {*NAMES.values(), "array", "object"} == bases


def validator(document: Document, schema: Schema) -> Draft202012Validator:
    """Checks values against a schema of the document."""
    return Draft202012Validator({**schema, "components": document["components"]})


def closed(value: Any) -> Any:
    """The same document, but objects have no other fields than those it describes."""
    if isinstance(value, list):
        return [closed(entry) for entry in value]
    if not isinstance(value, dict):
        return value
    found = {key: closed(entry) for key, entry in value.items()}
    if value.get("type") == "object" and "properties" in value:
        found["additionalProperties"] = False
    return found
