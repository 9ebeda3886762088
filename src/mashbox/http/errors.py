"""Errors on the wire. The path says in whose shape.

OpenAI's is here: `{"error": {"message", "type", "param", "code"}}`; Anthropic's in `anthropic_errors.py`.
"""

from __future__ import annotations

import logging
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from mashbox import errors
from mashbox.http import anthropic_errors
from mashbox.http.json import json_response

_log = logging.getLogger(__name__)

ERROR_TYPES: dict[type[errors.RequestError], str] = {
    errors.RequestError: "invalid_request_error",
    errors.OverloadedError: "rate_limit_error",
    errors.NotReadyError: "server_error",
    errors.EngineError: "server_error",
    errors.InternalError: "server_error",
}
"""OpenAI's error type for each part of the tree; the nearest ancestor counts."""


def error_type(error: errors.RequestError) -> str:
    """OpenAI's name for this kind of error."""
    return next(ERROR_TYPES[kind] for kind in type(error).__mro__ if kind in ERROR_TYPES)


def error_body(error: errors.RequestError, **more: Any) -> dict[str, Any]:
    """The error object of a response or of a stream; `more` adds fields to it."""
    return {
        "error": {
            "message": str(error),
            "type": error_type(error),
            "param": error.param,
            "code": error.code,
            **more,
        }
    }


def error_headers(error: errors.RequestError) -> dict[str, str]:
    """Retry-After and Allow, where the error has them."""
    headers = {}
    if error.retry_after is not None:
        headers["Retry-After"] = str(error.retry_after)
    if isinstance(error, errors.MethodNotAllowedError):
        headers["Allow"] = error.allow
    return headers


def error_response(error: errors.RequestError, path: str = "") -> Response:
    """The whole answer to a request for `path` that failed before its status line."""
    headers = error_headers(error)
    if not path.startswith(anthropic_errors.PATHS):
        return json_response(error_body(error), status=error.status, headers=headers)
    request_id = anthropic_errors.new_request_id()
    return json_response(
        anthropic_errors.error_body(error, request_id),
        status=anthropic_errors.error_status(error),
        headers=headers | anthropic_errors.error_headers(error, request_id),
    )


def as_request_error(error: Exception) -> errors.RequestError:
    """The error a client may see; a bug is logged with its traceback and told in one plain sentence."""
    if isinstance(error, errors.RequestError):
        return error
    _log.error("A bug ended a request", exc_info=error)
    return errors.InternalError()


def from_http_exception(request: Request, error: HTTPException) -> errors.RequestError:
    """Starlette's own refusals (no such path, wrong method) in our tree."""
    where = f"{request.method} {request.url.path}"
    if error.status_code == 405:
        allow = ", ".join(sorted((error.headers or {}).get("Allow", "").split(", ")))
        return errors.MethodNotAllowedError(f"{where} is not allowed; use {allow}.", allow=allow)
    return errors.RouteNotFoundError(f"There is no {where} on this server.", code="unknown_url")


async def on_request_error(request: Request, error: Exception) -> Response:
    """Starlette exception handler for RequestError."""
    assert isinstance(error, errors.RequestError)
    return error_response(error, request.scope["path"])


async def on_bug(request: Request, error: Exception) -> Response:
    """Starlette exception handler for everything else; the server logs the traceback and hangs up."""
    response = error_response(errors.InternalError(), request.scope["path"])
    response.headers["Connection"] = "close"
    return response


async def on_http_exception(request: Request, error: Exception) -> Response:
    """Starlette exception handler for HTTPException."""
    assert isinstance(error, HTTPException)
    return error_response(from_http_exception(request, error), request.scope["path"])
