"""http/errors.py: the error tree on the wire."""

from __future__ import annotations

import json
import logging

import pytest

from mashbox import errors
from mashbox.http.errors import as_request_error, error_body, error_response


@pytest.mark.parametrize(
    ("error", "status", "kind", "code", "param"),
    [
        (errors.InvalidRequestError("no", param="n"), 400, "invalid_request_error", None, "n"),
        (
            errors.ContextLengthError(9, 8),
            400,
            "invalid_request_error",
            "context_length_exceeded",
            "messages",
        ),
        (
            errors.ModelNotFoundError("no", param="model"),
            404,
            "invalid_request_error",
            "model_not_found",
            "model",
        ),
        (
            errors.RouteNotFoundError("no", code="unknown_url"),
            404,
            "invalid_request_error",
            "unknown_url",
            None,
        ),
        (errors.MethodNotAllowedError("no", allow="GET"), 405, "invalid_request_error", None, None),
        (errors.BodyTooLargeError("no"), 413, "invalid_request_error", None, None),
        (errors.MediaTypeError("no"), 415, "invalid_request_error", None, None),
        (errors.OverloadedError("no", retry_after=3), 429, "rate_limit_error", "rate_limit_exceeded", None),
        (errors.EngineError("no"), 500, "server_error", "engine_error", None),
        (errors.InternalError(), 500, "server_error", "internal_error", None),
        (errors.NotReadyError("no", retry_after=3), 503, "server_error", "not_ready", None),
    ],
)
def test_shape(
    error: errors.RequestError, status: int, kind: str, code: str | None, param: str | None
) -> None:
    response = error_response(error)
    assert response.status_code == status
    assert response.headers["content-type"] == "application/json"
    assert json.loads(bytes(response.body)) == {
        "error": {"message": str(error), "type": kind, "param": param, "code": code}
    }


def test_headers() -> None:
    assert error_response(errors.OverloadedError("no", retry_after=3)).headers["retry-after"] == "3"
    assert (
        error_response(errors.MethodNotAllowedError("no", allow="GET, HEAD")).headers["allow"] == "GET, HEAD"
    )
    assert "retry-after" not in error_response(errors.EngineError("no")).headers


def test_stream_errors_carry_more() -> None:
    assert error_body(errors.EngineError("no"), request_id="x")["error"]["request_id"] == "x"


def test_a_bug_is_logged_and_not_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        told = as_request_error(KeyError("secret"))
    assert isinstance(told, errors.InternalError)
    assert "secret" not in str(told)
    assert caplog.records[0].exc_info is not None
    assert as_request_error(error := errors.EngineError("died")) is error
