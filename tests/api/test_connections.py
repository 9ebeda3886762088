"""What happens on the wire itself: framing, clients that leave, clients that do not read."""

from __future__ import annotations

import contextlib
import itertools
import json
import select
import socket
import threading
import time

import httpx2 as httpx
import pytest

from mashbox.http.protocol import MAX_PIPELINED
from tests.api.conftest import Server
from tests.api.serve import WIRE_LIMITS
from tests.api.wire import HEAD, answers, one, post, send

LONG = "a[pause]" * 900
ROUTES = ["/v1/chat/completions", "/v1/completions"]


def body(route: str, text: str, **fields: object) -> dict[str, object]:
    prompt = {"messages": [{"role": "user", "content": text}]} if "chat" in route else {"prompt": text}
    return prompt | fields


@pytest.mark.parametrize("route", ROUTES)
def test_framing(server: Server, route: str) -> None:
    answer = server.http.post(route, json=body(route, "hi", stream=True))
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert answer.headers["cache-control"] == "no-cache"
    assert answer.headers["x-accel-buffering"] == "no"
    *events, done, end = answer.text.split("\n\n")
    assert (done, end) == ("data: [DONE]", "")
    told = [json.loads(event.removeprefix("data: ")) for event in events if event != ": keep-alive"]
    assert all(chunk["choices"] for chunk in told)


@pytest.mark.parametrize("route", ROUTES)
def test_tokens_come_as_they_are_made(server: Server, route: str) -> None:
    times = []
    with server.http.stream(
        "POST", route, json=body(route, "a[pause]b[pause]c[pause]d", stream=True)
    ) as answer:
        for line in answer.iter_lines():
            if line:
                times.append(time.monotonic())
    assert times[-1] - times[0] > 0.12
    assert sum(b - a > 0.02 for a, b in itertools.pairwise(times)) >= 3


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("stream", [False, True])
def test_leaving_stops_the_answer(server: Server, route: str, stream: bool) -> None:
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.sendall(request(route, body(route, LONG, stream=stream)))
        server.until(lambda report: report["live_rows"] == 1)
        if stream:
            assert b"200 OK" in client.recv(100)
    server.until(lambda report: report["live_rows"] == 0)


def test_leaving_the_queue(server: Server) -> None:
    clients = []
    for _ in range(4):
        client = socket.create_connection(("127.0.0.1", server.port))
        client.sendall(request(ROUTES[1], body(ROUTES[1], LONG)))
        clients.append(client)
    server.until(lambda report: (report["live_rows"], report["waiting"]) == (2, 2))
    for client in reversed(clients):
        client.close()
    server.until(lambda report: (report["live_rows"], report["waiting"]) == (0, 0))


def test_a_quiet_stream_gets_comments(server: Server) -> None:
    text = "[pause]" * 20
    with server.http.stream("POST", ROUTES[0], json=body(ROUTES[0], text, stream=True)) as answer:
        lines = list(answer.iter_lines())
    assert 1 <= lines.count(": keep-alive") <= 6
    assert lines[-2:] == ["data: [DONE]", ""]


STALLED_S = WIRE_LIMITS.stalled_s


def slow_client(server: Server, buffer: int | None) -> socket.socket:
    """A client whose receive buffer is small before it connects."""
    client = socket.socket()
    if buffer is not None:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    client.connect(("127.0.0.1", server.port))
    client.settimeout(5)
    return client


def read_on(client: socket.socket) -> int:
    """Bytes until the connection ends, however it does."""
    received = 0
    with contextlib.suppress(ConnectionResetError):
        while piece := client.recv(1 << 20):
            received += len(piece)
    return received


@pytest.mark.parametrize("buffer", [4096, None])
@pytest.mark.parametrize("text", ["[flood]" * 500 + "[pause]" * 200, "[flood]" * 20 + "[pause][flood]" * 200])
def test_a_client_that_does_not_read_its_stream_is_left(
    server: Server, buffer: int | None, text: str
) -> None:
    before = server.descriptors()
    with slow_client(server, buffer) as client:
        client.sendall(request(ROUTES[1], body(ROUTES[1], text, stream=True)))
        server.until(lambda report: report["live_rows"] == 1)
        server.until(lambda report: report["live_rows"] == 0, 4 * STALLED_S)
        server.until(lambda _: server.descriptors() <= before, 1)
        assert read_on(client) < 5_000_000


@pytest.mark.parametrize("buffer", [4096, None])
def test_a_client_that_does_not_read_a_whole_answer_is_left(server: Server, buffer: int | None) -> None:
    before = server.descriptors()
    with slow_client(server, buffer) as client:
        client.sendall(request(ROUTES[1], body(ROUTES[1], "[flood]" * 800)))
        server.until(lambda report: report["live_rows"] == 1)
        server.until(lambda report: report["live_rows"] == 0, 4)
        time.sleep(STALLED_S)
        server.until(lambda _: server.descriptors() <= before, 2 * STALLED_S)
        assert read_on(client) < 5_000_000


def test_a_client_that_reads_no_errors_is_left(server: Server) -> None:
    before = server.descriptors()
    with slow_client(server, 4096) as client, contextlib.suppress(ConnectionError, TimeoutError):
        while True:
            client.sendall(request(ROUTES[1], {"prompt": 5}) * 10)
    server.until(lambda _: server.descriptors() <= before, 4 * STALLED_S)


@pytest.mark.parametrize(("buffer", "rate"), [(4096, 10_000), (None, 250_000)])
@pytest.mark.parametrize("stream", [False, True])
def test_a_slow_but_steady_client_stays(server: Server, buffer: int | None, rate: int, stream: bool) -> None:
    """Kernels tell that a full buffer was read from only when most of it was, so `rate` depends on it."""
    with slow_client(server, buffer) as client:
        fields = body(ROUTES[1], "[flood]" * 100, stream=stream)
        client.sendall(post(json.dumps(fields).encode(), b"Connection: close"))
        end = time.monotonic() + 3.5 * STALLED_S
        received = 0
        while time.monotonic() < end:
            received += len(client.recv(rate // 20))
            time.sleep(0.05)
        received += read_on(client)
    assert received > 1_000_000


def test_leaving_while_an_answer_is_sent_leaves_nothing(server: Server) -> None:
    before = server.descriptors()
    for stream in (True, False):
        with slow_client(server, 4096) as client:
            client.sendall(request(ROUTES[1], body(ROUTES[1], "[flood]" * 300, stream=stream)))
            assert b"200 OK" in client.recv(100)
    server.until(lambda report: report["live_rows"] == 0)
    server.until(lambda _: server.descriptors() <= before, STALLED_S / 2)


def test_leaving_with_requests_in_line_stops_the_running_one(server: Server) -> None:
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.sendall(request(ROUTES[1], body(ROUTES[1], LONG, stream=True)) * 3)
        server.until(lambda report: report["live_rows"] == 1)
        assert b"200 OK" in client.recv(100)
    server.until(lambda report: report["live_rows"] == 0, 2)


SMALL = post(b'{"prompt": "hi"}')
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
REFUSED = {
    "path": (414, [b"GET /v1/" + b"a" * 8192 + b" HTTP/1.1\r\n\r\n"]),
    "path in pieces": (414, [b"GET /v1/" + b"a" * 5000, b"a" * 5000]),
    "header": (431, [b"GET /v1 HTTP/1.1\r\nA: " + b"a" * 65536 + b"\r\n\r\n"]),
    "header without an end": (431, [b"GET /v1 HTTP/1.1\r\nA: ", *[b"a" * 20_000] * 5]),
    "headers": (431, [b"GET /v1 HTTP/1.1\r\n" + b"A: b\r\n" * 201 + b"\r\n"]),
    "header behind a body": (431, [CHUNKED + b"2\r\n{}\r\n0\r\nA: ", *[b"a" * 20_000] * 5]),
    "no HTTP": (400, [b"\x16\x03\x01\x02"]),
    "chunk of no size": (400, [CHUNKED + b"zz\r\n"]),
    "chunk of any size": (400, [CHUNKED + b"f" * 20 + b"\r\n"]),
    "two lengths": (400, [post(b"{}", b"Content-Length: 3")]),
    "length and chunks": (400, [post(b"{}", b"Transfer-Encoding: chunked")]),
    "NUL in a header": (400, [b"GET /v1 HTTP/1.1\r\nA: b\0c\r\n\r\n"]),
    "bare CR": (400, [b"GET /v1 HTTP/1.1\rA: b\r\r"]),
    "slow head": (408, [b"GET /v1 HTTP/1.1\r\nA: "]),
    "head that never begins": (408, [b"\r\n"]),
    "slow body": (408, [HEAD + b"Content-Length: 9\r\n\r\n{"]),
    "long body": (413, [HEAD + b"Content-Length: 99999999\r\n\r\n"]),
    "long body that waits": (413, [HEAD + b"Expect: 100-continue\r\nContent-Length: 99999999\r\n\r\n"]),
    "compressed body": (415, [post(b"{}", b"Content-Encoding: gzip", b"Connection: close")]),
    "no such path": (
        404,
        [b"POST /v2 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999999\r\n\r\n" + b"a" * 9_999_999],
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_refusal_is_told_and_ends_the_connection(server: Server, case: str) -> None:
    status, pieces = REFUSED[case]
    answer = one(server.port, *pieces, pause=0.02)
    assert (answer.status, answer.closed) == (status, True)
    assert answer.error["type"] == "invalid_request_error"
    assert answer.headers["x-request-id"].startswith("req_")


def test_a_refusal_has_its_routes_shape(server: Server) -> None:
    answer = one(server.port, b"POST /v1/messages?a=b HTTP/1.1\r\nA: b\0c\r\n\r\n")
    told = json.loads(answer.body)
    assert (answer.status, told["type"], told["request_id"]) == (400, "error", answer.headers["x-request-id"])


def test_refusals_are_counted(server: Server) -> None:
    def count() -> float:
        lines = server.http.get("/metrics").text.splitlines()
        return sum(
            float(line.split()[-1]) for line in lines if 'code="431"' in line or 'status="431"' in line
        )

    before = count()
    one(server.port, b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 201 + b"\r\n")
    assert count() == before + 1


def test_a_long_head_that_is_within_the_limits(server: Server) -> None:
    headers = b"".join(b"A%d: %s\r\n" % (i, b"b" * 300) for i in range(190))
    answer = one(
        server.port,
        b"GET /health?"
        + b"a" * 8000
        + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        + headers
        + b"\r\n",
    )
    assert answer.status == 200


def test_a_client_that_says_nothing_is_left(server: Server) -> None:
    begun = time.monotonic()
    assert send(server.port) == []
    assert time.monotonic() - begun > 2 * WIRE_LIMITS.silent_s


def test_a_slow_request_that_goes_on_is_answered(server: Server) -> None:
    last = post(b'{"prompt": "hi"}', b"Connection: close")
    cuts = [last[at : at + 12] for at in range(len(HEAD), len(last), 12)]
    assert one(server.port, last[: len(HEAD)], *cuts, pause=0.12).status == 200


def test_a_body_that_trickles_is_refused(server: Server) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as client:
        client.sendall(HEAD + b"Content-Length: 1000\r\n\r\n")
        begun = time.monotonic()
        while not select.select([client], [], [], WIRE_LIMITS.silent_s / 5)[0]:
            assert time.monotonic() - begun < 2 * WIRE_LIMITS.silent_s
            client.sendall(b" ")
        (answer,) = answers(client)
    assert (answer.status, answer.closed) == (408, True)
    assert "slower than 16 KiB a second" in answer.error["message"]


def test_a_body_that_takes_long_at_a_fair_pace_is_answered(server: Server) -> None:
    last = post(b'{"prompt": "hi"' + b" " * 60_000 + b"}", b"Connection: close")
    cuts = [last[at : at + 3000] for at in range(0, len(last), 3000)]
    begun = time.monotonic()
    assert one(server.port, *cuts, pause=0.1).status == 200
    assert time.monotonic() - begun > 2 * WIRE_LIMITS.silent_s


def test_the_body_of_a_request_in_line_is_not_hurried(server: Server) -> None:
    running = post(json.dumps({"prompt": "a[pause]" * 40}).encode())
    last = post(b'{"prompt": "hi"}', b"Connection: close")
    cuts = [last[at:][:1] for at in range(len(last) - 8, len(last))]
    told = send(server.port, running + last[:-8], *cuts, pause=WIRE_LIMITS.silent_s / 5)
    assert [answer.status for answer in told] == [200, 200]


def test_requests_in_line_are_answered_in_order(server: Server) -> None:
    told = send(server.port, SMALL * 5 + post(b'{"prompt": 5}', b"Connection: close"))
    assert [answer.status for answer in told] == [200] * 5 + [400]


def test_few_requests_stand_in_line(server: Server) -> None:
    told = send(server.port, SMALL * 100)
    assert [answer.status for answer in told] == [200] * (MAX_PIPELINED + 1) + [429]
    assert told[-1].closed


def test_what_is_no_http_behind_a_request_waits_its_turn(server: Server) -> None:
    told = send(server.port, post(b'{"prompt": "a[pause]b"}') + b"\0")
    assert [answer.status for answer in told] == [200, 400]


def test_a_body_that_waits_to_be_asked_for(server: Server) -> None:
    head = HEAD + b"Connection: close\r\nExpect: 100-continue\r\nContent-Length: 16\r\n\r\n"
    told = send(server.port, head, b'{"prompt": "hi"}', pause=0.1)
    assert [answer.status for answer in told] == [100, 200]


def test_a_body_that_nobody_wants(server: Server) -> None:
    head = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
    told = send(server.port, post(b"hello", head=head) + post(b"", b"Connection: close", head=head))
    assert [(answer.status, answer.closed) for answer in told] == [(200, False), (200, True)]
    told = send(server.port, head + b"Content-Length: 99999999\r\n\r\n" + b"a" * 20_000_000)
    assert [(answer.status, answer.closed) for answer in told] == [(200, True)]


def test_headers_behind_a_body_are_no_headers(server: Server) -> None:
    line = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
    head = line + b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    behind = b"2\r\n{}\r\n0\r\nContent-Type: application/json\r\n\r\n"
    assert one(server.port, head + behind).status == 415


def test_streams_run_side_by_side(server: Server) -> None:
    answers: dict[int, str] = {}

    def ask(number: int) -> None:
        answers[number] = httpx.post(
            f"http://127.0.0.1:{server.port}{ROUTES[1]}",
            json={"prompt": f"number {number} [pause] end", "stream": number % 2 == 0},
        ).text

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(12):
        if number % 2:
            assert json.loads(answers[number])["choices"][0]["text"] == f"number {number}  end"
        else:
            *events, done, _ = answers[number].split("\n\n")
            told = [json.loads(event[6:]) for event in events if event != ": keep-alive"]
            assert "".join(chunk["choices"][0]["text"] for chunk in told) == f"number {number}  end"
            assert done == "data: [DONE]"


def request(route: str, fields: dict[str, object]) -> bytes:
    content = json.dumps(fields).encode()
    head = f"POST {route} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content
