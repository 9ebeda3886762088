"""Keys on the wire: who may use the API, and as whose."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from mashbox.errors import AuthenticationError
from mashbox.http.keys import KeyRing, Keys
from mashbox.http.record import record_in

GUARDED = ("/v1", "/api/v1", "/metrics", "/openapi.json")
"""These paths, and all below them, need a key."""
OPEN = frozenset({"/v1/health"})
"""But these do not."""
UNKEYED_METHODS = frozenset({"HEAD", "OPTIONS"})
"""HEAD tells whether the server is ready and nothing else; a browser sends no key with OPTIONS."""


class AuthMiddleware:
    """Asks for a key where one is needed, and writes down whose it is. Without keys nothing is checked."""

    def __init__(self, app: ASGIApp, keys: Keys) -> None:
        self._app = app
        self._keys = keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        ring = self._keys.ring
        if ring is not None and scope["type"] == "http" and needs_key(scope["method"], scope["path"]):
            record_in(scope).tenant = authenticate(ring, scope["headers"])
        await self._app(scope, receive, send)


def needs_key(method: str, path: str) -> bool:
    """Whether a request needs a key where there are keys."""
    if method in UNKEYED_METHODS or path in OPEN:
        return False
    if not path.isprintable():  # routes match a path with a line's end behind it, too
        return True
    return any(path == guarded or path.startswith(f"{guarded}/") for guarded in GUARDED)


def authenticate(ring: KeyRing, headers: list[tuple[bytes, bytes]]) -> str:
    """The tenant whose key these headers carry. Raises AuthenticationError."""
    sent = sent_keys(headers)
    if not sent:
        raise AuthenticationError(
            "This server needs an API key. Send it as 'Authorization: Bearer <key>' or as 'x-api-key: <key>'."
        )
    if len(sent) > 1:
        raise AuthenticationError("This request carries different API keys; send one.")
    tenant = ring.tenant(sent.pop())
    if tenant is None:
        raise AuthenticationError("This API key is not one of this server's.")
    return tenant


def sent_keys(headers: list[tuple[bytes, bytes]]) -> set[bytes]:
    """Every key in the two headers; names of headers are lower case. Empty ones count as not sent."""
    sent = set()
    for name, value in headers:
        if name == b"x-api-key":
            sent.add(value.strip(b" \t"))
        elif name == b"authorization":
            scheme, _, key = value.strip(b" \t").partition(b" ")
            if scheme.lower() == b"bearer":
                sent.add(key.strip(b" \t"))
    return sent - {b""}
