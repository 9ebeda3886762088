"""What a browser has to be told so that a page from elsewhere may use the server. Pure."""

from __future__ import annotations

from collections.abc import Mapping

Headers = list[tuple[bytes, bytes]]

_EXPOSED = b"x-request-id, request-id, retry-after, x-should-retry"
_METHODS = b"GET, HEAD, POST"
_MAX_AGE_S = b"600"
_USUAL = (
    b"authorization, content-type, x-api-key, anthropic-version, anthropic-beta, "
    b"anthropic-dangerous-direct-browser-access, x-session-id, last-event-id"
)
"""Allowed where the browser does not say which headers the page wants to send."""
_TOKEN = b"!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_MOST_ASKED_BYTES = 4096


def answer_headers(origin: bytes) -> Headers:
    """Headers of every answer to a page of this origin, errors among them."""
    return [
        (b"access-control-allow-origin", origin),
        (b"vary", b"Origin"),
        (b"access-control-expose-headers", _EXPOSED),
    ]


def preflight_headers(asked: Mapping[bytes, bytes]) -> dict[str, str]:
    """More headers for the answer to a browser that asks first; `asked` are the request's."""
    names = asked.get(b"access-control-request-headers", b"")
    headers = {
        b"access-control-allow-methods": _METHODS,
        b"access-control-allow-headers": names if _are_names(names) else _USUAL,
        b"access-control-max-age": _MAX_AGE_S,
    }
    if asked.get(b"access-control-request-private-network") == b"true":
        headers[b"access-control-allow-private-network"] = b"true"
    return {name.decode(): value.decode() for name, value in headers.items()}


def _are_names(listed: bytes) -> bool:
    """Whether this is a list of header names: what is sent back must be nothing else."""
    names = [name.strip(b" ") for name in listed.split(b",")]
    return len(listed) <= _MOST_ASKED_BYTES and all(
        name and not name.translate(None, _TOKEN) for name in names
    )
