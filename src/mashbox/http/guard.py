"""Who may speak to the server at all: by which host name, and from which web pages."""

from __future__ import annotations

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from mashbox.errors import ForbiddenError
from mashbox.http.allowed import Address, Allowed, origin_at, parse_address, parse_origin
from mashbox.http.cors import answer_headers, preflight_headers
from mashbox.http.record import record_in

ONCE = (b"host", b"origin")
"""Headers that must not come twice: which one counts would be anybody's guess."""
OWN_SITES = frozenset({b"same-origin", b"none"})
"""Sec-Fetch-Site of the server's own pages, and of what a person typed."""


class GuardMiddleware:
    """Refuses host names the server does not answer to, and pages of other origins (403).

    The host comes first, so that a page whose own name was made to lead here is not taken for ours. Programs
    send neither Origin nor Sec-Fetch-Site. Answers to a page that is allowed carry the headers with which its
    browser lets it read them.
    """

    def __init__(self, app: ASGIApp, allowed: Allowed) -> None:
        self._app = app
        self._allowed = allowed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        refuse_doubles(scope["headers"])
        host = self._check_host(headers)
        page = headers.get(b"origin")
        if page is None:
            check_fetch(scope, headers)
        elif self._check_origin(page, scope["scheme"], host):
            record_in(scope).headers += answer_headers(page)
            if scope["method"] == "OPTIONS" and b"access-control-request-method" in headers:
                await Response(None, 204, preflight_headers(headers))(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _check_host(self, headers: dict[bytes, bytes]) -> Address:
        address = parse_address(headers.get(b"host", b""))
        if address is None:
            raise ForbiddenError(
                "The request must have a Host header with a host name.", code="host_not_allowed"
            )
        if not self._allowed.answers_to(address):
            raise ForbiddenError(
                f"This server does not answer to the host name {address.name}. "
                f"It would if started with --allow-host {address.name}.",
                code="host_not_allowed",
            )
        return address

    def _check_origin(self, page: bytes, scheme: str, host: Address) -> bool:
        """Whether the page is from elsewhere and allowed; False: it is the server's own."""
        origin = parse_origin(page)
        if origin == origin_at(scheme, host):
            return False
        if origin is None or not self._allowed.welcomes(origin):
            raise ForbiddenError(
                "Web pages of this origin may not use this server; see --allow-origin.",
                code="origin_not_allowed",
            )
        return True


def refuse_doubles(headers: list[tuple[bytes, bytes]]) -> None:
    """Raise ForbiddenError for a second Host or Origin."""
    names = [name for name, _ in headers]
    for name in ONCE:
        if names.count(name) > 1:
            raise ForbiddenError(
                f"The request has more than one {name.decode().title()} header.",
                code=f"{name.decode()}_not_allowed",
            )


def check_fetch(scope: Scope, headers: dict[bytes, bytes]) -> None:
    """Refuse what another page loads without an Origin, such as an image; a link may lead to `/`."""
    if headers.get(b"sec-fetch-site", b"none") in OWN_SITES:
        return
    link = (
        headers.get(b"sec-fetch-mode") == b"navigate"
        and headers.get(b"sec-fetch-dest", b"document") == b"document"
        and scope["method"] == "GET"
    )
    if not link or scope["path"] != "/":
        raise ForbiddenError("Web pages of other origins may not load this.", code="origin_not_allowed")
