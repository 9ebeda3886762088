"""Every route: what it takes and what it answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mashbox.api.openapi import examples
from mashbox.api.openapi.errors import header, response_ref
from mashbox.api.openapi.examples import Examples
from mashbox.api.openapi.schema import Schema, ref

ALWAYS = (403, 414, 431)
"""Errors that every route may answer with."""
KEYED = (401, *ALWAYS)
POSTED = (400, 408, 413, 415, *KEYED)
SESSION_HEADER: Schema = {
    "name": "X-Session-Id",
    "in": "header",
    "required": False,
    "description": "Names the session in the server's log; counts before `prompt_cache_key`.",
    "schema": {"type": "string"},
}


def paths(model_id: str) -> dict[str, Schema]:
    """The document's paths, with `model_id` in the examples."""
    return {
        **health_paths(),
        **model_paths(model_id),
        "/v1/chat/completions": {
            "post": _generate("chatCompletions", CHAT, examples.chat_examples(model_id))
        },
        "/v1/completions": {"post": _generate("completions", TEXT, examples.completion_examples(model_id))},
        "/v1/messages": {"post": _generate("messages", MESSAGES, examples.messages_examples(model_id))},
        "/v1/messages/count_tokens": {"post": _count(model_id)},
        "/v1/responses": {"post": _generate("responses", RESPONSES, examples.responses_examples(model_id))},
        **document_paths(),
    }


def health_paths() -> dict[str, Schema]:
    """Health under its three names, and HEAD."""
    head = {
        "operationId": "headHealth",
        "tags": ["State"],
        "summary": "Ready check without a body",
        "description": "200 when requests are taken, else 503. HEAD is answered like this on every path.",
        "security": [],
        "responses": {
            "200": {"description": "Ready.", "headers": _ids()},
            "503": {"description": "Not ready.", "headers": _ids() | {"Retry-After": header("RetryAfter")}},
            **_errors(ALWAYS),
        },
    }
    return {
        "/v1/health": {"get": _health("health", "Health"), "head": head},
        "/health": {"get": _health("shortHealth", "Health (short path)")},
        "/": {"get": _health("rootHealth", "Health (root path)")},
    }


def _health(name: str, summary: str) -> Schema:
    unready = _json("Requests are not taken: the model is loading, or the server is ending.", "Health")
    unready["headers"]["Retry-After"] = header("RetryAfter")
    return {
        "operationId": name,
        "tags": ["State"],
        "summary": summary,
        "description": "200 when the model is loaded and requests are taken, else 503. Never needs a key.",
        "security": [],
        "responses": {"200": _json("Ready.", "Health"), "503": unready, **_errors(ALWAYS)},
    }


def model_paths(model_id: str) -> dict[str, Schema]:
    """The model routes."""
    parameter = {
        "name": "model",
        "in": "path",
        "required": True,
        "description": "Id of a model. It may hold slashes, as they are or as %2F.",
        "schema": {"type": "string"},
        "example": model_id,
    }
    listing = {
        "operationId": "listModels",
        "tags": ["Models"],
        "summary": "List models",
        "description": "The one model that runs here. Answers while it loads, too.",
        "responses": {"200": _json("A list of one.", "ModelList"), **_errors(KEYED)},
    }
    one = {
        "operationId": "getModel",
        "tags": ["Models"],
        "summary": "Get a model",
        "description": "The model, when the path has its id.",
        "parameters": [parameter],
        "responses": {"200": _json("The model.", "Model"), **_errors((404, *KEYED))},
    }
    return {"/v1/models": {"get": listing}, "/v1/models/{model}": {"get": one}}


def document_paths() -> dict[str, Schema]:
    """Metrics and this document."""
    metrics = {
        "operationId": "metrics",
        "tags": ["State"],
        "summary": "Metrics (Prometheus text)",
        "description": "What the server does, for Prometheus: requests running and waiting, use and layout "
        "of the slots, answers by how they ended, tokens, prompt cache, worker restarts, and histograms of "
        "the time in the queue, to the first token, for each token and in all. Names begin with "
        "`mashbox:`; no label tells a key, a tenant or a session.",
        "responses": {
            "200": {
                "description": "Text in Prometheus' exposition format 0.0.4.",
                "headers": _ids(),
                "content": {"text/plain": {"schema": {"type": "string"}}},
            },
            **_errors(KEYED),
        },
    }
    document = {
        "operationId": "openapi",
        "tags": ["State"],
        "summary": "This description",
        "description": "The OpenAPI 3.1 description of this server, with the id of the model that runs.",
        "responses": {
            "200": {
                "description": "An OpenAPI 3.1 document.",
                "headers": _ids(),
                "content": {"application/json": {"schema": {"type": "object", "required": ["openapi"]}}},
            },
            **_errors(KEYED),
        },
    }
    return {"/metrics": {"get": metrics}, "/openapi.json": {"get": document}}


Words = tuple[str, str, str, str, str]
"""Summary, description, and the schemas of body, answer and stream."""

CHAT: Words = (
    "Chat completion",
    "OpenAI's Chat Completions, with function tools and thinking, whole or streamed. Thinking comes as "
    "`reasoning_content`.",
    "ChatCompletionRequest",
    "ChatCompletion",
    "ChatCompletionChunk",
)
TEXT: Words = (
    "Text completion",
    "Goes on with a text as it is: no chat template.",
    "CompletionRequest",
    "Completion",
    "Completion",
)
MESSAGES: Words = (
    "Messages (Anthropic)",
    "Anthropic's Messages, with client tools and thinking, whole or streamed. Queries such as `?beta=true` "
    "and headers such as `anthropic-version` are accepted and ignored.",
    "MessagesRequest",
    "Message",
    "MessageStreamEvent",
)
RESPONSES: Words = (
    "Responses (OpenAI)",
    "OpenAI's Responses, with function, custom and namespace tools and reasoning, whole or streamed. "
    "Nothing is stored. A client that asks for a WebSocket (GET with `Upgrade`) gets 426: go on with POST.",
    "ResponsesRequest",
    "Response",
    "ResponseStreamEvent",
)


def _generate(name: str, words: Words, bodies: Examples) -> Schema:
    summary, description, body, answer, stream = words
    anthropic = answer == "Message"
    told = _json(f"The answer; with `stream`, its events: `{stream}` is the data of one.", answer, anthropic)
    told["content"]["text/event-stream"] = {"schema": ref(stream)}
    busy = (429, 500, 529) if anthropic else (404, 429, 500, 503)
    return {
        "operationId": name,
        "tags": ["Answers"],
        "summary": summary,
        "description": description,
        "parameters": [SESSION_HEADER],
        "requestBody": _body(body, bodies),
        "responses": {"200": told, **_errors((*POSTED, *busy), anthropic)},
    }


def _count(model_id: str) -> Schema:
    return {
        "operationId": "countTokens",
        "tags": ["Answers"],
        "summary": "Count tokens",
        "description": (
            "How many tokens the prompt of a Messages request has, with the chat template around it."
        ),
        "requestBody": _body("CountTokensRequest", examples.count_examples(model_id)),
        "responses": {
            "200": _json("The count.", "TokenCount", True),
            **_errors((*POSTED, 500, 529), anthropic=True),
        },
    }


def _body(name: str, bodies: Examples) -> Schema:
    content: dict[str, Any] = {"schema": ref(name), "examples": bodies}
    return {"required": True, "content": {"application/json": content}}


def _json(description: str, name: str, anthropic: bool = False) -> Schema:
    content = {"application/json": {"schema": ref(name)}}
    return {"description": description, "headers": _ids(anthropic), "content": content}


def _ids(anthropic: bool = False) -> dict[str, Schema]:
    headers = {"x-request-id": header("RequestId")}
    return headers | {"request-id": header("AnthropicRequestId")} if anthropic else headers


def _errors(statuses: Sequence[int], anthropic: bool = False) -> dict[str, Schema]:
    return {str(status): response_ref(status, anthropic) for status in sorted(statuses)}
