"""GET /openapi.json: what this server does, as an OpenAPI 3.1 document."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from mashbox.api.anthropic_request import CountRequest
from mashbox.api.openapi import (
    chat_answer,
    chat_request,
    messages_answer,
    messages_request,
    responses_answer,
    responses_request,
)
from mashbox.api.openapi.errors import HEADERS, error_responses, error_schemas
from mashbox.api.openapi.paths import paths
from mashbox.api.openapi.schema import Schema, Table, components
from mashbox.api.openapi.status import STATUS_NAMES, STATUS_TABLE, list_schema
from mashbox.api.responses_body import ResponsesBody
from mashbox.api.settings import ServeConfig
from mashbox.engine.types import Sampling
from mashbox.http.json import JSON

ABOUT = """
One language model, `{model}`, behind the interfaces of OpenAI (Chat Completions, Completions, Responses) and
Anthropic (Messages).

- POST bodies are `application/json`, at most 32 MiB. Fields that are not described are accepted and ignored,
  and null counts as absent. Fields with `x-any-value` take any value.
- Without keys none is checked, and any that is sent is ignored; that is only possible on loopback addresses.
  With keys, all routes but the health paths need one, as `Authorization: Bearer` or as `x-api-key`.
- Another path is answered with 404, another method with 405 and `Allow`, both in the error shape of the path;
  HEAD is answered on every path. `OPTIONS` serves web pages whose origin is allowed.
- Every answer has an `x-request-id`.
"""
NAMES: dict[type, str] = {
    **STATUS_NAMES,
    CountRequest: "CountTokensRequest",
    ResponsesBody: "ResponsesRequest",
}
SECURITY: dict[str, Schema] = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "A key, where the server has any."},
    "apiKey": {
        "type": "apiKey",
        "in": "header",
        "name": "x-api-key",
        "description": "The same key as Anthropic's clients send it.",
    },
}


class OpenApi:
    """The route's handler. What it answers is the same as long as the server runs."""

    def __init__(self, config: ServeConfig) -> None:
        self._body = msgspec.json.encode(describe(config.model_id, config.default_sampling))

    async def handle(self, request: Request) -> Response:
        """The document; also while the model loads."""
        return Response(self._body, media_type=JSON)


def describe(model_id: str, defaults: Sampling) -> dict[str, Any]:
    """The document of a server of `model_id` with these defaults for sampling fields."""
    return {
        "openapi": "3.1.0",
        "jsonSchemaDialect": "https://spec.openapis.org/oas/3.1/dialect/base",
        "info": {
            "title": "mashbox model server",
            "version": version("mashbox"),
            "description": ABOUT.format(model=model_id).strip(),
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "tags": [
            {"name": "Answers", "description": "What the model says."},
            {"name": "Models", "description": "Which model it is."},
            {"name": "State", "description": "What the server does."},
        ],
        "security": [{}, {"bearer": []}, {"apiKey": []}],
        "paths": paths(model_id),
        "components": {
            "schemas": schemas(model_id, defaults),
            "responses": error_responses(),
            "headers": HEADERS,
            "securitySchemes": SECURITY,
        },
    }


def schemas(model_id: str, defaults: Sampling) -> dict[str, Schema]:
    """Every named schema."""
    parts: Table = {
        **responses_request.ITEM_TABLE,
        **responses_request.TOOL_TABLE,
        **messages_request.BLOCK_TABLE,
    }
    whole: Table = {
        **STATUS_TABLE,
        **chat_request.chat_table(defaults),
        **messages_request.messages_table(defaults),
        **responses_request.responses_table(defaults),
        **chat_answer.ANSWER_TABLE,
        **messages_answer.ANSWER_TABLE,
    }
    found = components({**parts, **whole}, NAMES)
    untyped = {kind.__name__ for kind in parts} - {"ThoughtPart", "CustomFormat"}
    for name in ("ChatCompletionRequest", "CompletionRequest", "MessagesRequest", "ResponsesRequest"):
        found[name]["properties"]["model"]["examples"] = [model_id]
    return {
        **{name: schema for name, schema in found.items() if name not in untyped},
        "ModelList": list_schema(),
        "ServerTool": messages_request.server_tool(),
        **messages_request.block_schemas(found),
        **responses_request.item_schemas(found),
        **responses_request.tool_schemas(found),
        **responses_request.choice_schemas(),
        **chat_answer.chat_schemas(),
        **chat_answer.completion_schemas(),
        **messages_answer.message_schemas(),
        **messages_answer.event_schemas(),
        **responses_answer.response_schemas(),
        **responses_answer.event_schemas(),
        **error_schemas(),
    }
