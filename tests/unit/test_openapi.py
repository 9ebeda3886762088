"""The document is valid, complete, and says what the tables of the contract say."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator
from starlette.routing import Route

from mashbox.api.anthropic_request import MessagesRequest
from mashbox.api.openai_chat import ChatCompletionRequest
from mashbox.api.openai_completions import CompletionRequest
from mashbox.api.openapi.__main__ import MODEL_ID, text
from mashbox.api.openapi.document import describe
from mashbox.api.responses_body import ResponsesBody
from mashbox.api.wire import GenerationFields
from mashbox.engine.types import Sampling
from tests.api.serve import build
from tests.contract.reading import agrees, body_schema, object_schema, operation, resolve, validator
from tests.contract.table import ABSENT, FieldRow, StatusRow, field_rows, status_rows

DOCUMENT = describe(MODEL_ID, Sampling())
KEPT = Path(__file__).parents[2] / "docs" / "openapi.json"
POSTS = [route for route in DOCUMENT["paths"] if "post" in DOCUMENT["paths"][route]]


def test_it_is_valid() -> None:
    OpenAPIV31SpecValidator(DOCUMENT).validate()
    for schema in DOCUMENT["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)


def test_the_kept_document_is_this_one() -> None:
    assert KEPT.read_text() == text(), "run make openapi"


def test_only_the_id_tells_two_servers_apart() -> None:
    other = json.dumps(describe("other/model", Sampling()))
    assert json.loads(other.replace("other/model", MODEL_ID)) == DOCUMENT


def test_defaults_are_those_of_the_server() -> None:
    schema = body_schema(describe("m", Sampling(temperature=0.7, top_k=20)), "POST /v1/completions")
    assert schema["properties"]["temperature"]["default"] == 0.7
    assert schema["properties"]["top_k"]["default"] == 20


def test_every_route_is_there() -> None:
    served = {
        (method, route.path.replace(":path", ""))
        for route in build("scripted.gguf").routes
        if isinstance(route, Route)
        for method in (route.methods or ())
        if method != "HEAD" and (method, route.path) != ("GET", "/v1/responses")  # which refuses
    }
    told = {(method.upper(), path) for path, found in DOCUMENT["paths"].items() for method in found}
    assert told - {("HEAD", "/v1/health")} == served


def places(value: Any, where: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every property of every schema, with its place."""
    if isinstance(value, dict):
        for name, field in value.get("properties", {}).items():
            if isinstance(field, dict) and value.get("description"):
                yield f"{where}.{name}", field
        for key, entry in value.items():
            yield from places(entry, f"{where}/{key}")
    elif isinstance(value, list):
        for entry in value:
            yield from places(entry, where)


def test_every_field_has_words() -> None:
    silent = [
        where
        for where, field in places(DOCUMENT["components"]["schemas"])
        if not ("description" in field or "$ref" in field or "const" in field)
    ]
    assert silent == []


def test_nothing_is_left_over() -> None:
    """Every named schema and response is used, but for answers to requests that no route is for."""
    raw = json.dumps(DOCUMENT)
    names = [
        f"#/components/{kind}/{name}"
        for kind in ("schemas", "responses", "headers")
        for name in DOCUMENT["components"][kind]
    ]
    unused = [name.rpartition("/")[2] for name in names if f'"{name}"' not in raw]
    assert unused == ["MethodNotAllowed", "AnthropicMethodNotAllowed"]


@pytest.mark.parametrize("row", field_rows(), ids=str)
def test_field(row: FieldRow) -> None:
    schema = object_schema(DOCUMENT, row.place)
    field = schema["properties"][row.name]
    assert agrees(DOCUMENT, row.kind, field), field
    if row.of_request or row.required:
        assert (row.name in schema.get("required", ())) == row.required
    if row.default is not ABSENT:
        assert field["default"] == row.default
    if row.ignored:
        assert field["x-any-value"] is True


@pytest.mark.parametrize("row", status_rows(), ids=str)
def test_status(row: StatusRow) -> None:
    response = resolve(DOCUMENT, operation(DOCUMENT, row.route)["responses"][row.status])
    content = response.get("content", {})
    assert content.keys() == row.bodies.keys()
    for media, name in row.bodies.items():
        if name is not None:
            assert content[media]["schema"] == {"$ref": f"#/components/schemas/{name}"}


@pytest.mark.parametrize("path", POSTS)
def test_examples_fit_their_schemas(path: str) -> None:
    content = DOCUMENT["paths"][path]["post"]["requestBody"]["content"]["application/json"]
    check = validator(DOCUMENT, content["schema"])
    assert content["examples"]
    for example in content["examples"].values():
        check.validate(example["value"])
        for field in content_fields(example["value"]):
            assert not check.is_valid(example["value"] | {field: 1.5}), field


def content_fields(body: dict[str, Any]) -> set[str]:
    """Fields of a body that no number fits."""
    return body.keys() - {"temperature", "top_p", "store"}


BODIES: list[tuple[type[GenerationFields], dict[str, Any], str]] = [
    (ChatCompletionRequest, {"messages": [{"role": "user"}]}, "/v1/chat/completions"),
    (CompletionRequest, {"prompt": "x"}, "/v1/completions"),
    (MessagesRequest, {"messages": [{"role": "user"}]}, "/v1/messages"),
    (ResponsesBody, {"input": "x"}, "/v1/responses"),
]


@pytest.mark.parametrize(("kind", "body", "path"), BODIES, ids=[path for _, _, path in BODIES])
def test_an_absent_field_and_its_default_are_the_same(
    kind: type[GenerationFields], body: dict[str, Any], path: str
) -> None:
    fields = body_schema(DOCUMENT, f"POST {path}")["properties"]
    told = {name: fields[name]["default"] for name in fields if "default" in fields[name]}
    absent, given = msgspec.convert(body, kind), msgspec.convert(body | told, kind)
    assert told.keys() >= set(Sampling.__struct_fields__) - {"seed"}
    assert bool(absent.stream) == told["stream"]
    options = [msgspec.structs.replace(one, seed=1).options(Sampling()) for one in (absent, given)]
    assert options[0] == options[1]
