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
from mashbox.http.echo import cut, echo
from mashbox.http.json import json_response
from mashbox.http.record import CANCELLED, RequestRecord, record_of

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
            "message": cut(str(error)),
            "type": error_type(error),
            "param": error.param and cut(error.param),
            "code": error.code,
            **more,
        }
    }


def error_headers(error: errors.RequestError) -> dict[str, str]:
    """Retry-After, Allow and WWW-Authenticate, where the error has them."""
    headers = {}
    if error.retry_after is not None:
        headers["Retry-After"] = str(error.retry_after)
    if isinstance(error, errors.MethodNotAllowedError):
        headers["Allow"] = error.allow
    if isinstance(error, errors.AuthenticationError):
        headers["WWW-Authenticate"] = "Bearer"
    return headers


def error_response(error: errors.RequestError, record: RequestRecord) -> Response:
    """The whole answer to a request that failed before its status line; its record gets the error's name."""
    record.error = error_name(error)
    headers = error_headers(error)
    if not record.path.startswith(anthropic_errors.PATHS):
        return json_response(error_body(error), status=error.status, headers=headers)
    return json_response(
        anthropic_errors.error_body(error, record.id),
        status=anthropic_errors.error_status(error),
        headers=headers | anthropic_errors.error_headers(error),
    )


def error_name(error: errors.RequestError) -> str:
    """What the log calls it: its code, else its kind."""
    return CANCELLED if isinstance(error, errors.ClientGoneError) else error.code or error_type(error)


def as_request_error(error: Exception, record: RequestRecord | None = None) -> errors.RequestError:
    """The error a client may see; a bug is logged with its traceback and told in one plain sentence."""
    if isinstance(error, errors.RequestError):
        return error
    _log.error("a bug ended %s", "a request" if record is None else record.id, exc_info=error)
    return errors.InternalError()


def from_http_exception(request: Request, error: HTTPException) -> errors.RequestError:
    """Starlette's own refusals (no such path, wrong method) in our tree."""
    where = f"{request.method} {echo(request.url.path)}"
    if error.status_code == 405:
        allow = ", ".join(sorted((error.headers or {}).get("Allow", "").split(", ")))
        return errors.MethodNotAllowedError(f"{where} is not allowed; use {allow}.", allow=allow)
    return errors.RouteNotFoundError(f"There is no {where} on this server.", code="unknown_url")


async def on_http_exception(request: Request, error: Exception) -> Response:
    """Starlette exception handler for HTTPException."""
    assert isinstance(error, HTTPException)
    return error_response(from_http_exception(request, error), record_of(request))
