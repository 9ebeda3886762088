"""The benchmark's client against real sockets."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from bench import load
from bench.errors import BenchError
from bench.load import Ask, Client, Route

STREAM = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
    b'24\r\ndata: {"choices":[{"text":"one"}]}\n\n\r\n',
    b'24\r\ndata: {"choices":[{"text":"two"}]}\n\n\r\n0\r\n\r\n',
)
WHOLE = (b'HTTP/1.1 200 OK\r\nContent-Length: 30\r\n\r\n{"choices":[{"text":"whole"}]}',)


@contextmanager
def served(talk: Callable[[socket.socket, int], None]) -> Iterator[int]:
    """The port of a server that hands each connection, with its number, to `talk` in a thread."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            number = 0
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                number += 1
                threading.Thread(target=talk, args=(connection, number), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


def reply(connection: socket.socket, parts: tuple[bytes, ...]) -> bool:
    """Read one request and answer it; False once the client has gone."""
    if not connection.recv(65536):
        return False
    for part in parts:
        connection.sendall(part)
    return True


def test_connections_are_used_again() -> None:
    seen: list[int] = []

    def talk(connection: socket.socket, number: int) -> None:
        with connection:
            while reply(connection, STREAM if len(seen) != 1 else WHOLE):
                seen.append(number)

    with served(talk) as port, Client(port, Route.COMPLETIONS) as client:
        texts = [client.ask(Ask("x", 2)).text for _ in range(3)]
    assert texts == ["onetwo", "whole", "onetwo"]
    assert seen == [1, 1, 1]


def test_a_connection_the_server_has_closed_is_replaced() -> None:
    closed = threading.Semaphore(0)

    def talk(connection: socket.socket, number: int) -> None:
        with connection:
            reply(connection, STREAM)
        closed.release()

    with served(talk) as port, Client(port, Route.COMPLETIONS) as client:
        assert client.ask(Ask("x", 2)).text == "onetwo"
        assert closed.acquire(timeout=5)
        assert client.ask(Ask("x", 2)).text == "onetwo"


def test_several_streams_at_once() -> None:
    together = threading.Barrier(4)

    def talk(connection: socket.socket, number: int) -> None:
        with connection:
            together.wait(5)
            reply(connection, STREAM)
            connection.recv(1)

    with served(talk) as port, Client(port, Route.CHAT) as client:
        answers = client.ask_all([Ask("x", 2)] * 4)
    assert [answer.text for answer in answers] == ["onetwo"] * 4


def test_a_second_request_can_start_beside_a_running_stream() -> None:
    go_on = threading.Event()

    def talk(connection: socket.socket, number: int) -> None:
        with connection:
            if number == 1:
                reply(connection, STREAM[:2])
                go_on.wait(5)
                connection.sendall(STREAM[2])
            else:
                reply(connection, STREAM)
                go_on.set()
            connection.recv(1)

    with served(talk) as port, Client(port, Route.COMPLETIONS) as client:
        running = client.start(Ask("x", 2))
        client.run(lambda: running.chunks >= 1)
        assert not running.done
        beside = client.start(Ask("y", 2))
        client.run(lambda: running.done and beside.done)
        assert running.answer().arrivals[-1] >= beside.sent


def test_a_hang_up_in_the_middle_is_told() -> None:
    def talk(connection: socket.socket, number: int) -> None:
        with connection:
            reply(connection, STREAM[:2])

    with (
        served(talk) as port,
        Client(port, Route.COMPLETIONS) as client,
        pytest.raises(BenchError, match="closed the connection"),
    ):
        client.ask(Ask("x", 2))


def test_a_connection_is_not_used_again_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "REUSE_S", 0.0)
    seen: list[int] = []

    def talk(connection: socket.socket, number: int) -> None:
        with connection:
            while reply(connection, STREAM):
                seen.append(number)

    with served(talk) as port, Client(port, Route.COMPLETIONS) as client:
        for _ in range(2):
            assert client.ask(Ask("x", 2)).text == "onetwo"
    assert seen == [1, 2]
