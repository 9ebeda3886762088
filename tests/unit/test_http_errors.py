"""http/errors.py: the error tree on the wire."""

from __future__ import annotations

import json
import logging

import pytest

from mashbox import errors
from mashbox.http.errors import as_request_error, error_body, error_response
from mashbox.http.record import RequestRecord


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
    response = error_response(error, RequestRecord("POST", "/"))
    assert response.status_code == status
    assert response.headers["content-type"] == "application/json"
    assert json.loads(bytes(response.body)) == {
        "error": {"message": str(error), "type": kind, "param": param, "code": code}
    }


def test_headers() -> None:
    record = RequestRecord("POST", "/")
    assert error_response(errors.OverloadedError("no", retry_after=3), record).headers["retry-after"] == "3"
    refused = errors.MethodNotAllowedError("no", allow="GET, HEAD")
    assert error_response(refused, record).headers["allow"] == "GET, HEAD"
    assert "retry-after" not in error_response(errors.EngineError("no"), record).headers


def test_stream_errors_carry_more() -> None:
    assert error_body(errors.EngineError("no"), request_id="x")["error"]["request_id"] == "x"


def test_a_bug_is_logged_and_not_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        told = as_request_error(KeyError("secret"))
    assert isinstance(told, errors.InternalError)
    assert "secret" not in str(told)
    assert caplog.records[0].exc_info is not None
    assert as_request_error(error := errors.EngineError("died")) is error


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/count_tokens", "/v1/messages/nope"])
@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (errors.InvalidRequestError("no", param="n"), 400, "invalid_request_error"),
        (errors.ModelNotFoundError("no", param="model"), 404, "not_found_error"),
        (errors.RouteNotFoundError("no", code="unknown_url"), 404, "not_found_error"),
        (errors.MethodNotAllowedError("no", allow="GET"), 405, "invalid_request_error"),
        (errors.BodyTooLargeError("no"), 413, "request_too_large"),
        (errors.MediaTypeError("no"), 415, "invalid_request_error"),
        (errors.OverloadedError("no", retry_after=3), 429, "rate_limit_error"),
        (errors.EngineError("no"), 500, "api_error"),
        (errors.InternalError(), 500, "api_error"),
        (errors.NotReadyError("no", retry_after=3), 529, "overloaded_error"),
    ],
)
def test_anthropic_shape(error: errors.RequestError, status: int, kind: str, path: str) -> None:
    response = error_response(error, record := RequestRecord("POST", path))
    assert response.status_code == status
    body = json.loads(bytes(response.body))
    assert body.pop("request_id") == record.id
    assert body == {"type": "error", "error": {"type": kind, "message": str(error)}}
    assert record.id.startswith("req_")
    assert ("x-should-retry" in response.headers) == (status == 529)
    assert ("retry-after" in response.headers) == (status in (429, 529))
    assert ("allow" in response.headers) == (status == 405)


@pytest.mark.parametrize("path", ["", "/v1/chat/completions", "/v1/models/v1/messages", "/messages"])
def test_other_paths_have_the_other_shape(path: str) -> None:
    response = error_response(errors.NotReadyError("no", retry_after=3), RequestRecord("POST", path))
    assert response.status_code == 503
    assert set(json.loads(bytes(response.body))) == {"error"}
    assert "x-should-retry" not in response.headers


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (errors.ContextLengthError(9000, 8192), "prompt is too long: 9000 tokens > 8191 maximum"),
        (
            errors.ContextLengthError(9000, 8192, counted=False),
            "prompt is too long: at least 9000 tokens > 8191 maximum",
        ),
    ],
)
def test_anthropic_words_for_a_long_prompt(error: errors.ContextLengthError, message: str) -> None:
    told = json.loads(bytes(error_response(error, RequestRecord("POST", "/v1/messages")).body))["error"]
    assert told == {"type": "invalid_request_error", "message": message}
