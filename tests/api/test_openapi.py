"""The served document is true: examples, refusals, ignored fields and events as it describes them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from mashbox.api.openapi.__main__ import MODEL_ID as KEPT_ID
from mashbox.api.openapi.document import describe
from mashbox.chat.formats.plain import write_call
from mashbox.engine.types import Sampling
from tests.api.conftest import Server, run_server
from tests.api.serve import MODEL_ID
from tests.contract.reading import body_schema, closed, kinds, operation, resolve, validator
from tests.wire.anthropic_events import check_stream as check_message_stream
from tests.wire.chat_events import read_chat_stream
from tests.wire.responses_events import check_stream as check_response_stream

DOCUMENT = describe(MODEL_ID, Sampling())
CLOSED = closed(DOCUMENT)
USER = [{"role": "user", "content": "hi"}]
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": USER},
    "/v1/completions": {"prompt": "hi"},
    "/v1/messages": {"messages": USER},
    "/v1/messages/count_tokens": {"messages": USER},
    "/v1/responses": {"input": "hi"},
}
"""The least that each route takes."""
ANY = [None, True, 7, 1.5, "text", [], [{"a": None}], {}, {"a": [1, {"b": "c"}]}]
WRONG: dict[str, Any] = {
    "string": "text",
    "boolean": True,
    "integer": 7,
    "number": 1.5,
    "array": [[]],
    "object": {"a": 1},
}
"""A value of each type."""


def check_answer(path: str, answer: Any) -> Any:
    """The body of an answer, which must be as the document says for its status."""
    response = resolve(DOCUMENT, operation(DOCUMENT, f"POST {path}")["responses"][str(answer.status_code)])
    for name, header in response["headers"].items():
        header = resolve(DOCUMENT, header)
        assert name in answer.headers or not header.get("required"), name
    content = response["content"][answer.headers["content-type"].partition(";")[0]]
    body = answer.json()
    validator(CLOSED, content["schema"]).validate(body)
    return body


def test_the_served_document_is_the_kept_one_but_for_the_id(server: Server) -> None:
    answer = server.http.get("/openapi.json")
    assert answer.headers["content-type"] == "application/json"
    assert json.loads(answer.text.replace(MODEL_ID, KEPT_ID)) == describe(KEPT_ID, Sampling())


def test_it_is_served_while_the_model_loads() -> None:
    with run_server("slow") as server:
        server.until(lambda report: "worker_pid" in report)
        assert server.http.get("/openapi.json").json() == DOCUMENT
        for path, body in BODIES.items():
            answer = server.http.post(path, json=body)
            assert answer.status_code == (529 if path.startswith("/v1/messages") else 503)
            check_answer(path, answer)
        for path in ("/v1/health", "/health", "/"):
            answer = server.http.get(path)
            told = operation(DOCUMENT, f"GET {path}")["responses"]["503"]
            validator(DOCUMENT, told["content"]["application/json"]["schema"]).validate(answer.json())
            assert (answer.status_code, int(answer.headers["retry-after"]) >= 1) == (503, True)


def examples() -> Iterator[Any]:
    for path in BODIES:
        content = operation(DOCUMENT, f"POST {path}")["requestBody"]["content"]["application/json"]
        for name, example in content["examples"].items():
            yield pytest.param(path, example["value"], id=f"{path} {name}")


@pytest.mark.parametrize(("path", "body"), list(examples()))
def test_examples_are_answered(server: Server, path: str, body: dict[str, Any]) -> None:
    answer = server.http.post(path, json=body)
    assert answer.status_code == 200, answer.text
    if not body.get("stream"):
        check_answer(path, answer)
        return
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert check_events(path, answer.content) > 2


def check_events(path: str, sent: bytes) -> int:
    """Check a whole stream's order, and each event against the document; the number of events."""
    content = operation(DOCUMENT, f"POST {path}")["responses"]["200"]["content"]["text/event-stream"]
    check = validator(CLOSED, content["schema"])
    lines = [line.removeprefix("data: ") for line in sent.decode().split("\n") if line.startswith("data: ")]
    if path == "/v1/messages":
        check_message_stream(sent)
    elif path == "/v1/responses":
        check_response_stream(sent)
    else:
        assert lines.pop() == "[DONE]"
    for line in lines:
        check.validate(json.loads(line))
    return len(lines)


def test_a_chat_stream_has_its_order(server: Server) -> None:
    answer = server.chat("hi", stream=True, stream_options={"include_usage": True})
    assert read_chat_stream(answer.text, include_usage=True).content == "hi"


TOOL_ROUTES: list[tuple[str, list[dict[str, Any]]]] = [
    ("/v1/chat/completions", [{"type": "function", "function": {"name": "f"}}]),
    ("/v1/messages", [{"name": "f", "input_schema": {}}]),
    ("/v1/responses", [{"type": "function", "name": "f"}]),
    ("/v1/responses", [{"type": "custom", "name": "f"}]),
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("path", "tools"), TOOL_ROUTES)
def test_calls_are_as_described(server: Server, path: str, tools: list[dict[str, Any]], stream: bool) -> None:
    say = write_call("f", '{"input": "a"}')
    body = {"messages": [{"role": "user", "content": say}], "input": say, "tools": tools, "stream": stream}
    answer = server.http.post(path, json=body)
    assert answer.status_code == 200, answer.text
    assert re.search('"(tool_calls|tool_use|function_call|custom_tool_call)"', answer.text)
    if stream:
        check_events(path, answer.content)
    else:
        check_answer(path, answer)


@pytest.mark.parametrize("path", [path for path in BODIES if not path.endswith("count_tokens")])
def test_failures_are_as_described(server: Server, path: str) -> None:
    failing = json.loads(json.dumps(BODIES[path]).replace("hi", "ab[fail]"))
    told = check_answer(path, server.http.post(path, json=failing))
    assert told["error"]["type"] in ("server_error", "api_error")
    sent = server.http.post(path, json=failing | {"stream": True}).text
    events = [json.loads(line[6:]) for line in sent.split("\n") if line.startswith("data: {")]
    content = operation(DOCUMENT, f"POST {path}")["responses"]["200"]["content"]["text/event-stream"]
    schemas = [content["schema"], {"$ref": "#/components/schemas/Error"}]
    for event in events:
        validator(DOCUMENT, {"anyOf": schemas}).validate(event)
    failed = next(event for event in events if "error" in event or event.get("type") == "error")
    assert "request_id" in (failed["error"] if path in SHAPE_OF_CHAT else failed)


SHAPE_OF_CHAT = ("/v1/chat/completions", "/v1/completions")


def refusals() -> Iterator[tuple[str, str, Any]]:
    """Values that the document does not allow: wrong types and numbers out of range."""
    for path in BODIES:
        for name, field in body_schema(DOCUMENT, f"POST {path}")["properties"].items():
            if field.get("x-any-value"):
                continue
            allowed = kinds(DOCUMENT, field)
            allowed |= {"integer"} if "number" in allowed else set()
            yield from ((path, name, value) for kind, value in WRONG.items() if kind not in allowed)
            yield from ((path, name, value) for value in out_of_range(field))


def out_of_range(field: dict[str, Any]) -> Iterator[float]:
    for keyword, by in (("minimum", -1), ("maximum", 1), ("exclusiveMinimum", 0), ("exclusiveMaximum", 0)):
        if keyword in field:
            yield field[keyword] + by


def test_what_is_not_allowed_is_refused(server: Server) -> None:
    accepted, count = [], 0
    for path, name, value in refusals():
        answer = server.http.post(path, json=BODIES[path] | {name: value})
        told = check_answer(path, answer)["error"]
        count += 1
        named = told["param"] if "param" in told else told["message"]
        if answer.status_code != 400 or name not in named:
            accepted.append((path, name, value, answer.status_code, told))
    assert accepted == []
    assert count > 400


RANGES: dict[str, tuple[list[Any], list[Any]]] = {
    "max_tokens": ([1, 10**9], [0, -1, 1.5, "1"]),
    "max_completion_tokens": ([1, 10**9], [0, -1, "1"]),
    "temperature": ([0, 0.0, 4], [-0.001, 4.001, "1"]),
    "top_p": ([0.001, 1], [0, 1.001, -1]),
    "top_k": ([0, 1, 10**9], [-1, 0.5]),
    "min_p": ([0, 0.999], [1, -0.001]),
    "seed": ([0, -1, 2**63], ["1", 0.5, 2**64]),
    "stop": (["x", ["x", "y"], []], ["", [""], [1], 1]),
    "stop_sequences": ([["x"], []], ["x", [""], [1]]),
    "repetition_penalty": ([0.001, 1, 10], [0, -1]),
    "frequency_penalty": ([-2, 2], [-2.001, 2.001]),
    "presence_penalty": ([-2, 2], [-2.001, 2.001]),
    "n": ([1], [0, 2, "1"]),
    "stream": ([True, False], ["true", 1]),
}
"""Values of the shared fields that are good, and that are not."""


@pytest.mark.parametrize("path", [path for path in BODIES if not path.endswith("count_tokens")])
def test_ranges(server: Server, path: str) -> None:
    fields = body_schema(DOCUMENT, f"POST {path}")["properties"]
    for name, (good, bad) in RANGES.items():
        check = validator(DOCUMENT, fields[name])
        for value, fits in (*((value, True) for value in good), *((value, False) for value in bad)):
            assert check.is_valid(value) == fits, (name, value)
            answer = server.http.post(path, json=BODIES[path] | {name: value})
            assert answer.status_code == (200 if fits else 400), (name, value, answer.text)


@pytest.mark.parametrize("path", [path for path in BODIES if not path.endswith("count_tokens")])
def test_answers_are_only_streamed_when_asked_for(server: Server, path: str) -> None:
    assert body_schema(DOCUMENT, f"POST {path}")["properties"]["stream"]["default"] is False
    for fields, media in (({}, "application/json"), ({"stream": True}, "text/event-stream; charset=utf-8")):
        assert server.http.post(path, json=BODIES[path] | fields).headers["content-type"] == media


def test_ignored_fields_take_any_value(server: Server) -> None:
    routes: dict[str, list[str]] = {}
    for path in BODIES:
        fields = body_schema(DOCUMENT, f"POST {path}")["properties"]
        routes[path] = [name for name, field in fields.items() if field.get("x-any-value")]
        assert routes[path], path
    for path, names in routes.items():
        for name in (*names, "unheard_of"):
            for value in ANY:
                answer = server.http.post(path, json=BODIES[path] | {name: value})
                assert answer.status_code == 200, (path, name, value, answer.text)


@pytest.mark.parametrize("path", BODIES)
def test_null_is_the_same_as_absent(server: Server, path: str) -> None:
    schema = body_schema(DOCUMENT, f"POST {path}")
    optional = schema["properties"].keys() - set(schema["required"])
    answer = server.http.post(path, json=BODIES[path] | dict.fromkeys(optional))
    assert answer.status_code == 200
    check_answer(path, answer)


@pytest.mark.parametrize("path", BODIES)
def test_required_fields_are_required(server: Server, path: str) -> None:
    (required,) = body_schema(DOCUMENT, f"POST {path}")["required"]
    for body in ({}, {required: None}):
        answer = server.http.post(path, json=body)
        assert answer.status_code == 400
        assert required in check_answer(path, answer)["error"]["message"]


def test_defaults_are_what_is_used(server: Server) -> None:
    """The route that repeats its settings says the document's defaults."""
    fields = body_schema(DOCUMENT, "POST /v1/responses")["properties"]
    told = server.http.post("/v1/responses", json={"input": "hi"}).json()
    for name in ("temperature", "top_p", "tool_choice", "parallel_tool_calls"):
        assert told[name] == fields[name]["default"]


@pytest.mark.parametrize("path", [path for path in BODIES if not path.startswith("/v1/messages")])
def test_another_model_is_not_found(server: Server, path: str) -> None:
    answer = server.http.post(path, json=BODIES[path] | {"model": "other"})
    assert answer.status_code == 404
    assert check_answer(path, answer)["error"]["code"] == "model_not_found"


@pytest.mark.parametrize("path", BODIES)
def test_other_bodies_are_refused_as_described(server: Server, path: str) -> None:
    for status, headers, content in (
        (415, {"Content-Type": "text/plain"}, b"{}"),
        (413, {"Content-Type": "application/json"}, b" " * (32 * 2**20 + 1)),
        (400, {"Content-Type": "application/json"}, b"{"),
    ):
        answer = server.http.post(path, content=content, headers=headers)
        assert answer.status_code == status
        check_answer(path, answer)
