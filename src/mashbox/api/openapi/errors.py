"""Errors in both shapes, and the responses that carry them."""

from __future__ import annotations

from mashbox.api.openapi.schema import Schema, const, nullable, obj, ref, string
from mashbox.http import anthropic_errors
from mashbox.http.errors import ERROR_TYPES

KEPT_WAITING = (
    "32 requests of the same tenant wait for a slot already. Keys that the key file gives one tenant count "
    "together; a key without a tenant is one of its own, and without keys all clients are one. "
)
STATUSES: dict[int, tuple[str, str]] = {
    400: (
        "BadRequest",
        "The body is no valid JSON, a field is wrong (the error names it), the prompt does not fit the "
        "context, or the chat template refuses the messages.",
    ),
    401: (
        "Unauthorized",
        "The server needs a key, and there is none, an unknown one, or two different ones.",
    ),
    403: (
        "Forbidden",
        "The request names the server by a host it does not answer to, or comes from a web page of an "
        "origin that is not allowed.",
    ),
    404: ("ModelNotFound", "The request names a model that does not run here: code `model_not_found`."),
    405: ("MethodNotAllowed", "The path has no such method; `Allow` tells which it has."),
    408: ("RequestTimeout", "The rest of the request did not come in time."),
    413: ("BodyTooLarge", "The body is larger than 32 MiB."),
    414: ("UrlTooLong", "The path and query are too long."),
    415: ("NotJson", "The Content-Type is not application/json."),
    429: ("TooManyRequests", KEPT_WAITING + "Or 256 of all tenants wait."),
    431: ("HeadersTooLarge", "The headers are too long or too many."),
    500: (
        "Failed",
        "The model failed while it worked on the request, and once more on the one retry. Only a request "
        "whose client has received nothing is tried again. A stream that has sent output ends with an "
        "error event instead, which has the answer's id as `request_id`.",
    ),
    503: ("NotReady", "The model is loading, its process is being started again, or the server is ending."),
    529: (
        "Overloaded",
        "The model is loading, its process is being started again, or the server is ending (all with "
        "`x-should-retry`), or 256 requests of all tenants wait: `overloaded_error`.",
    ),
}
"""The name of each error's response and when it comes."""

WAITING_TENANT = KEPT_WAITING + "Type `rate_limit_error`."
BEFORE_THE_ROUTE = frozenset({400, 408, 414, 431})
"""Statuses that may also be sent for what is no HTTP request yet, without its headers."""

REQUEST_ID: Schema = {
    "description": "Id of the request, found in the server's log.",
    "schema": {"type": "string", "pattern": "^req_[0-9a-f]{32}$"},
}
HEADERS: dict[str, Schema] = {
    "RequestId": REQUEST_ID | {"required": True},
    "AnthropicRequestId": REQUEST_ID | {"description": "The same as `x-request-id`, as Anthropic names it."},
    "RetryAfter": {
        "description": "Seconds to wait before another try.",
        "required": True,
        "schema": {"type": "integer", "minimum": 1},
    },
    "ShouldRetry": {
        "description": "Another try is worth it; sent while the server is not ready.",
        "schema": {"type": "string", "const": "true"},
    },
    "Authenticate": {"description": "How to send a key.", "schema": {"type": "string"}},
    "Allow": {
        "description": "The methods that the path has.",
        "required": True,
        "schema": {"type": "string"},
    },
}


def header(name: str) -> Schema:
    """A reference to a header."""
    return {"$ref": f"#/components/headers/{name}"}


def response_ref(status: int, anthropic: bool = False) -> Schema:
    """A reference to the response of an error."""
    return {"$ref": f"#/components/responses/{'Anthropic' * anthropic}{STATUSES[status][0]}"}


def error_schemas() -> dict[str, Schema]:
    """Both shapes."""
    detail = obj(
        "What is wrong.",
        {
            "message": string("One plain sentence."),
            "type": string("Which kind of error.", enum=sorted(set(ERROR_TYPES.values()))),
            "param": nullable(string("The field that is wrong, if one is: `messages[0].role`.")),
            "code": nullable(
                string("One word, where clients may want to act on it: `context_length_exceeded`.")
            ),
            "request_id": string("Id of the answer; only in a stream's error event."),
        },
        optional=["param", "code", "request_id"],
    )
    kinds = sorted({*anthropic_errors.ERROR_TYPES.values(), "invalid_request_error"})
    told = obj(
        "What is wrong.",
        {"type": string("Which kind of error.", enum=kinds), "message": string("One plain sentence.")},
    )
    return {
        "Error": obj(
            "An error as OpenAI's API tells it: on all paths but `/v1/messages...`.", {"error": detail}
        ),
        "AnthropicError": obj(
            "An error as Anthropic's API tells it: on all paths that begin with `/v1/messages`.",
            {
                "type": const("error"),
                "error": ref("AnthropicErrorObject"),
                "request_id": string("The same as the header `request-id`."),
            },
            optional=["request_id"],
        ),
        "AnthropicErrorObject": told,
    }


def error_responses() -> dict[str, Schema]:
    """Every error's response by its name, in both shapes."""
    openai = {
        name: _response(status, words, False) for status, (name, words) in STATUSES.items() if status != 529
    }
    anthropic = {
        f"Anthropic{name}": _response(status, WAITING_TENANT if status == 429 else words, True)
        for status, (name, words) in STATUSES.items()
        if status not in (404, 503)
    }
    return openai | anthropic


def _response(status: int, words: str, anthropic: bool) -> Schema:
    schema = ref("AnthropicError" if anthropic else "Error")
    return {
        "description": words,
        "headers": _headers(status, anthropic),
        "content": {"application/json": {"schema": schema}},
    }


def _headers(status: int, anthropic: bool) -> dict[str, Schema]:
    headers = {"x-request-id": REQUEST_ID if status in BEFORE_THE_ROUTE else header("RequestId")}
    if anthropic:
        headers["request-id"] = header("AnthropicRequestId")
    if status in (429, 503, 529):
        headers["Retry-After"] = header("RetryAfter")
    if status == 529:
        headers["x-should-retry"] = header("ShouldRetry")
    if status == 405:
        headers["Allow"] = header("Allow")
    if status == 401:
        headers["WWW-Authenticate"] = header("Authenticate")
    return headers
