"""Large bodies on a real port: what they hold in all, and who is answered meanwhile."""

from __future__ import annotations

import os
import select
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from soak.watch import resident

from mashbox.http.body_budget import MOST_OF_TENANT, RETRY_S
from tests.api.test_guards import Guarded, run_guarded
from tests.api.wire import Answer, answers, one, post, prompt_health

MIB = 2**20
SENT = 8_000_000
CLIENTS = 60
FIT = MOST_OF_TENANT // SENT
"""Clients whose half-sent bodies fit into what their tenant may hold."""
LARGEST = post(b'{"prompt": "' + b"a" * (31 * MIB) + b'"}', b"Connection: close", head=b"")


def head(key: str, route: str = "/v1/completions") -> bytes:
    line = f"POST {route} HTTP/1.1\r\nHost: localhost\r\nx-api-key: {key}\r\n"
    return f"{line}Content-Type: application/json\r\n".encode()


def padded(key: str, size: int) -> bytes:
    return post(b'{"prompt": "hi"' + b" " * size + b"}", b"Connection: close", head=head(key))


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with run_guarded(tmp_path_factory.mktemp("bodies")) as guarded:
        yield guarded


def connect(box: Guarded) -> socket.socket:
    return socket.create_connection(("127.0.0.1", box.port), timeout=10)


def descriptors(box: Guarded) -> int:
    return len(os.listdir(f"/proc/{box.process.pid}/fd"))


def until_gone(box: Guarded, before: int) -> None:
    deadline = time.monotonic() + 5
    while descriptors(box) > before:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def half_send(box: Guarded, clients: ExitStack) -> list[socket.socket]:
    """Many bodies of one tenant, none of them whole."""
    begun = []
    for number in range(CLIENTS):
        client = clients.enter_context(connect(box))
        route = "/v1/messages" if number % 2 else "/v1/responses"
        start = head("red-key-1", route) + b"Content-Length: %d\r\n\r\n" % (SENT + 1)
        client.sendall(start + b" " * SENT)
        begun.append(client)
    return begun


def refused(begun: list[socket.socket], number: int) -> list[Answer]:
    """What clients that are still sending were told, once at least so many were."""
    deadline = time.monotonic() + 5
    while len(told := select.select(begun, [], [], 0)[0]) < number:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return [answer for client in told for answer in answers(client)]


def check_the_whole_budget_is_there(box: Guarded) -> None:
    """Two of the largest bodies at once, byte for byte."""
    with connect(box) as first:
        first.sendall(head("red-key-1") + LARGEST[:-1])
        answer = one(box.port, head("red-key-1") + LARGEST)
        assert answer.status == 400
        first.sendall(LARGEST[-1:])
        assert next(answers(first)).status == 400


def test_half_sent_bodies_hold_little_and_harm_nobody_else(box: Guarded) -> None:
    check_the_whole_budget_is_there(box)
    before, memory = descriptors(box), resident(box.process.pid)
    with ExitStack() as clients:
        with prompt_health(box.port):
            begun = half_send(box, clients)
            told = refused(begun, CLIENTS - FIT)
        for answer in told:
            assert (answer.status, answer.closed) == (429, True)
            assert answer.error["type"] == "rate_limit_error"
            assert answer.headers["retry-after"] == str(RETRY_S)
        assert len(told) < CLIENTS
        assert resident(box.process.pid) < memory + MOST_OF_TENANT * 5 // 4 + 32 * MIB
        assert one(box.port, padded("nameless-key", 4 * MIB)).status == 200
        assert one(box.port, padded("red-key-2", 60_000)).status == 200
    until_gone(box, before)
    check_the_whole_budget_is_there(box)
