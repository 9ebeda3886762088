"""What happens on the wire itself: framing, clients that leave, clients that do not read."""

from __future__ import annotations

import itertools
import json
import socket
import threading
import time

import httpx
import pytest

from tests.api.conftest import Server

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


def test_a_client_that_does_not_read_is_left(server: Server) -> None:
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", server.port))
        client.sendall(request(ROUTES[1], body(ROUTES[1], "[flood]" * 1000 + "[pause]" * 100, stream=True)))
        server.until(lambda report: report["live_rows"] == 1)
        server.until(lambda report: report["live_rows"] == 0, 4)
        client.settimeout(5)
        while client.recv(1 << 20):
            pass


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
    head = f"POST {route} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content
