"""http/guard.py, http/allowed.py, http/cors.py: host names, origins, and what a page's browser is told."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from starlette.types import Message, Receive, Scope, Send

from mashbox.errors import ConfigError, ForbiddenError
from mashbox.http.allowed import Address, Allowed, Origin, allow, parse_address, parse_origin
from mashbox.http.boundary import BoundaryMiddleware
from mashbox.http.cors import preflight_headers
from mashbox.http.guard import GuardMiddleware

Headers = list[tuple[bytes, bytes]]
ALLOWED = allow("box", ["a.example", ".lan.example"], ["https://chat.example", "app://notes"], keyed=False)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        (b"localhost", Address("localhost", None, False)),
        (b"LocalHost:8000", Address("localhost", 8000, False)),
        (b"localhost.", Address("localhost", None, False)),
        (b"localhost:", Address("localhost", None, False)),
        (b"my_box-1.lan:80", Address("my_box-1.lan", 80, False)),
        (b"127.0.0.1:8000", Address("127.0.0.1", 8000, True)),
        (b"10.1.2.3", Address("10.1.2.3", None, True)),
        (b"[::1]", Address("::1", None, True)),
        (b"[0:0::1]:80", Address("::1", 80, True)),
        (b"[FE80::1]:80", Address("fe80::1", 80, True)),
        # Ways to write a number that is no address: a name like any other, so not answered to.
        (b"127.1", Address("127.1", None, False)),
        (b"2130706433", Address("2130706433", None, False)),
        (b"127.0.0.1.", Address("127.0.0.1", None, False)),
        (b"0127.0.0.1", Address("0127.0.0.1", None, False)),
    ],
)
def test_hosts(text: bytes, address: Address) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize(
    "text",
    [
        *(
            b"",
            b".",
            b":80",
            b"[",
            b"[]",
            b"[::1",
            b"::1",
            b"[::1]x",
            b"[127.0.0.1]",
            b"[evil.example]",
            b"[::1]]",
        ),
        *(
            b"a b",
            b"a,b",
            b"a/b",
            b"u@a",
            b"a:b",
            b"a:80:80",
            b"a:-1",
            b"a:+1",
            b"a:65536",
            b"a:1234567",
            b"a?b",
        ),
        *(
            b"a#b",
            b"a\\b",
            b"a%00",
            b"a\x00",
            b"\xff",
            "bücher".encode(),
            b"a" * 254,
            b"a:\xb2",
            b"http://a",
            b"*",
        ),
    ],
)
def test_what_is_no_host(text: bytes) -> None:
    assert parse_address(text) is None


@pytest.mark.parametrize(
    ("text", "origin"),
    [
        (b"http://localhost:8000", Origin("http", "localhost", 8000)),
        (b"http://a.example", Origin("http", "a.example", 80)),
        (b"https://a.example", Origin("https", "a.example", 443)),
        (b"HTTPS://A.example:443", Origin("https", "a.example", 443)),
        (b"http://[::1]:80", Origin("http", "::1", 80)),
        (b"chrome-extension://abcdef", Origin("chrome-extension", "abcdef", None)),
    ],
)
def test_origins(text: bytes, origin: Origin) -> None:
    assert parse_origin(text) == origin


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"null",
        b"a.example",
        b"://a",
        b"https://",
        b"https://a/",
        b"https://a/b",
        b"https://a https://b",
        b"ht*://a",
    ],
)
def test_what_is_no_origin(text: bytes) -> None:
    assert parse_origin(text) is None


HOSTS = [
    *(
        (name, True)
        for name in (b"localhost", b"x.localhost", b"a.b.localhost:9", b"127.0.0.1", b"127.9.9.9:80")
    ),
    *(
        (name, True)
        for name in (b"[::1]:8000", b"192.168.1.7:8000", b"[fd00::7]", b"BOX:8000", b"a.example:1")
    ),
    *((name, True) for name in (b"b.lan.example", b"c.b.lan.example")),
    *(
        (name, False)
        for name in (b"evil.example", b"evil.example:8000", b"localhost.evil.example", b"notlocalhost")
    ),
    *(
        (name, False)
        for name in (b"lan.example", b"xlan.example", b"b.a.example", b"127.0.0.1.evil.example", b"")
    ),
    *(
        (name, False)
        for name in (b"localhost, evil.example", b"evil.example@localhost", b"local host", b"127.1")
    ),
]


@pytest.mark.parametrize(("host", "passes"), HOSTS)
def test_which_hosts_it_answers_to(host: bytes, passes: bool) -> None:
    assert (guard([(b"host", host)])[0] == 200) is passes


def guard(
    headers: Headers,
    method: str = "GET",
    path: str = "/v1/models",
    allowed: Allowed = ALLOWED,
    scheme: str = "http",
) -> tuple[int, dict[str, str]]:
    """Status and headers of the answer; 200 when the guard lets the request through."""
    sent: list[Message] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body"})

    async def receive() -> Message:
        raise AssertionError("nothing is read")

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "http", "method": method, "path": path, "scheme": scheme, "headers": headers}
    asyncio.run(BoundaryMiddleware(GuardMiddleware(app, allowed), lambda record: None)(scope, receive, send))
    return sent[0]["status"], {name.decode().lower(): value.decode() for name, value in sent[0]["headers"]}


LOCAL = (b"host", b"localhost:8000")
CHAT = (b"origin", b"https://chat.example")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([LOCAL], 200),
        ([], 403),
        ([LOCAL, LOCAL], 403),
        ([LOCAL, (b"host", b"evil.example")], 403),
        ([LOCAL, CHAT], 200),
        ([LOCAL, (b"origin", b"app://notes")], 200),
        ([LOCAL, (b"origin", b"http://localhost:8000")], 200),
        ([(b"host", b"localhost"), (b"origin", b"http://localhost:80")], 200),
        ([(b"host", b"[::1]:8000"), (b"origin", b"http://[::1]:8000")], 200),
        ([(b"host", b"a.example"), (b"origin", b"http://a.example")], 200),
        ([LOCAL, (b"origin", b"https://localhost:8000")], 403),
        ([LOCAL, (b"origin", b"http://localhost:3000")], 403),
        ([LOCAL, (b"origin", b"http://localhost")], 403),
        ([LOCAL, (b"origin", b"http://127.0.0.1:8000")], 403),
        ([LOCAL, (b"origin", b"http://chat.example")], 403),
        ([LOCAL, (b"origin", b"https://chat.example:444")], 403),
        ([LOCAL, (b"origin", b"https://chat.example.evil.example")], 403),
        ([LOCAL, (b"origin", b"https://evil.example")], 403),
        ([LOCAL, (b"origin", b"null")], 403),
        ([LOCAL, (b"origin", b"")], 403),
        ([LOCAL, CHAT, CHAT], 403),
        ([LOCAL, CHAT, (b"origin", b"https://evil.example")], 403),
        # A name that was made to lead here: page and request agree, and are refused all the same.
        ([(b"host", b"evil.example:8000"), (b"origin", b"http://evil.example:8000")], 403),
        ([(b"host", b"evil.example:8000"), (b"sec-fetch-site", b"same-origin")], 403),
        ([(b"host", b"evil.example"), CHAT], 403),
    ],
)
@pytest.mark.parametrize("path", ["/v1/models", "/health", "/", "/nothing"])
@pytest.mark.parametrize("method", ["GET", "POST", "HEAD"])
def test_hosts_and_origins(headers: Headers, status: int, path: str, method: str) -> None:
    assert guard(headers, method, path)[0] == status


def test_behind_tls_the_servers_own_pages_are_those_of_https() -> None:
    headers = [(b"host", b"a.example"), (b"origin", b"https://a.example")]
    assert guard(headers, scheme="https")[0] == 200
    assert guard(headers, scheme="http")[0] == 403


@pytest.mark.parametrize(
    ("site", "mode", "dest", "method", "path", "status"),
    [
        (b"same-origin", b"no-cors", b"image", "GET", "/v1/models", 200),
        (b"none", b"navigate", b"document", "GET", "/metrics", 200),
        (b"cross-site", b"no-cors", b"image", "GET", "/v1/models", 403),
        (b"cross-site", b"no-cors", b"script", "GET", "/", 403),
        (b"same-site", b"no-cors", b"script", "GET", "/health", 403),
        (b"same-site", b"navigate", b"document", "GET", "/", 200),
        (b"cross-site", b"navigate", b"document", "GET", "/", 200),
        (b"cross-site", b"navigate", None, "GET", "/", 200),
        (b"cross-site", b"navigate", b"iframe", "GET", "/", 403),
        (b"cross-site", b"navigate", b"document", "POST", "/", 403),
        (b"cross-site", b"navigate", b"document", "GET", "/v1/models", 403),
        (b"cross-site", None, None, "GET", "/", 403),
        (b"anything", b"cors", b"empty", "GET", "/", 403),
    ],
)
def test_what_pages_load_without_an_origin(
    site: bytes, mode: bytes | None, dest: bytes | None, method: str, path: str, status: int
) -> None:
    fetch = [(b"sec-fetch-site", site), (b"sec-fetch-mode", mode), (b"sec-fetch-dest", dest)]
    headers = [LOCAL, *((name, value) for name, value in fetch if value is not None)]
    assert guard(headers, method, path)[0] == status


def test_an_allowed_page_is_allowed_whatever_its_browser_calls_it() -> None:
    assert guard([LOCAL, CHAT, (b"sec-fetch-site", b"cross-site")])[0] == 200


def test_only_pages_from_elsewhere_get_cors_headers() -> None:
    _, headers = guard([LOCAL, CHAT])
    assert headers["access-control-allow-origin"] == "https://chat.example"
    assert headers["vary"] == "Origin"
    assert "x-request-id" in headers["access-control-expose-headers"]
    for other in (
        [LOCAL],
        [LOCAL, (b"origin", b"http://localhost:8000")],
        [LOCAL, (b"origin", b"https://evil.example")],
    ):
        assert not [name for name in guard(other)[1] if name.startswith("access-control")]


def preflight(*more: tuple[bytes, bytes], origin: tuple[bytes, bytes] = CHAT) -> tuple[int, dict[str, str]]:
    return guard([LOCAL, origin, (b"access-control-request-method", b"POST"), *more], "OPTIONS")


def test_a_preflight_is_answered() -> None:
    status, headers = preflight(
        (b"access-control-request-headers", b"authorization, x-stainless-lang,x-Api-Key")
    )
    assert status == 204
    assert headers["access-control-allow-origin"] == "https://chat.example"
    assert headers["access-control-allow-headers"] == "authorization, x-stainless-lang,x-Api-Key"
    assert headers["access-control-allow-methods"] == "GET, HEAD, POST"
    assert headers["access-control-max-age"] == "600"
    assert headers["x-request-id"].startswith("req_")
    assert "access-control-allow-private-network" not in headers


def test_a_preflight_into_a_private_network_is_answered() -> None:
    _, headers = preflight((b"access-control-request-private-network", b"true"))
    assert headers["access-control-allow-private-network"] == "true"
    assert "authorization" in headers["access-control-allow-headers"]


@pytest.mark.parametrize("origin", [b"https://evil.example", b"null", b"http://localhost:3000"])
def test_a_preflight_from_another_page_is_refused(origin: bytes) -> None:
    status, headers = preflight(origin=(b"origin", origin))
    assert status == 403
    assert not [name for name in headers if name.startswith("access-control")]


def test_other_options_requests_go_on() -> None:
    assert guard([LOCAL], "OPTIONS")[0] == 200
    assert guard([LOCAL, CHAT], "OPTIONS")[0] == 200


@pytest.mark.parametrize(
    "names", [b"", b"a,,b", b"a b", b"a: b", b"a;b", b"\xff", b"a\t", b"a," * 3000 + b"a"]
)
def test_only_names_of_headers_are_sent_back(names: bytes) -> None:
    told = preflight_headers({b"access-control-request-headers": names})
    assert told["access-control-allow-headers"] == preflight_headers({})["access-control-allow-headers"]


def test_any_origin_is_any_page_but_none_without_a_name() -> None:
    anyone = allow("localhost", [], ["*"], keyed=True)
    assert guard([LOCAL, (b"origin", b"https://any.example")], allowed=anyone)[0] == 200
    assert guard([LOCAL, (b"origin", b"null")], allowed=anyone)[0] == 403
    assert guard([(b"host", b"evil.example"), (b"origin", b"http://evil.example")], allowed=anyone)[0] == 403


@pytest.mark.parametrize(
    ("hosts", "host", "answered"),
    [
        (["Box.Example.com"], b"box.example.com", True),
        (["box.example.com:8000"], b"box.example.com:9", True),
        ([".example.com"], b"a.example.com", True),
        (["*.example.com"], b"a.b.example.com", True),
        (["*.example.com"], b"example.com", False),
        (["bücher.example"], b"xn--bcher-kva.example", True),
        (["a.example", "b.example"], b"b.example", True),
        ([], b"a.example", False),
    ],
)
def test_allowed_hosts(hosts: Sequence[str], host: bytes, answered: bool) -> None:
    address = parse_address(host)
    assert address is not None
    assert allow("127.0.0.1", hosts, [], keyed=False).answers_to(address) is answered


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "::1", "127.0.0.1", ""])
def test_any_host_can_be_bound_to(host: str) -> None:
    assert allow(host, [], [], keyed=True).names == {"localhost"} | ({host} if "." in host else set())


@pytest.mark.parametrize(
    "origin", ["https://chat.example/", "HTTPS://chat.example:443", "https://chat.example"]
)
def test_allowed_origins(origin: str) -> None:
    assert allow("localhost", [], [origin], keyed=False).origins == {Origin("https", "chat.example", 443)}


@pytest.mark.parametrize(
    ("hosts", "origins", "told"),
    [
        (["*"], [], "--allow-host"),
        ([""], [], "--allow-host"),
        (["http://a.example"], [], "--allow-host"),
        (["*.1.2.3.4"], [], "--allow-host"),
        (["a b"], [], "--allow-host"),
        (["..a"], [], "--allow-host"),
        ([], ["chat.example"], "--allow-origin"),
        ([], ["null"], "--allow-origin"),
        ([], ["https://chat.example/page"], "--allow-origin"),
        ([], ["https://*.example"], "--allow-origin"),
        ([], ["*"], "needs keys"),
    ],
)
def test_options_that_make_no_sense(hosts: Sequence[str], origins: Sequence[str], told: str) -> None:
    with pytest.raises(ConfigError, match=told) as caught:
        allow("localhost", hosts, origins, keyed=False)
    assert len(str(caught.value).splitlines()) == 1


def test_a_refusal_says_which_option_would_help() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None: ...

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None: ...

    scope = {
        "type": "http",
        "method": "GET",
        "path": "/",
        "scheme": "http",
        "headers": [(b"host", b"mybox:1")],
    }
    with pytest.raises(ForbiddenError, match="--allow-host mybox"):
        asyncio.run(GuardMiddleware(app, Allowed())(scope, receive, send))
