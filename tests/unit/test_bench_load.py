"""The benchmark's client against real sockets."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
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


def test_every_request_has_a_connection_of_its_own() -> None:
    """Each is closed after its answer, streamed or whole."""
    hung_up = threading.Semaphore(0)

    def talk(connection: socket.socket, number: int) -> None:
        with connection:
            reply(connection, WHOLE if number == 2 else STREAM)
            if connection.recv(1) == b"":
                hung_up.release()

    with served(talk) as port, Client(port, Route.COMPLETIONS) as client:
        texts = [client.ask(Ask("x", 2)).text for _ in range(3)]
        assert all(hung_up.acquire(timeout=5) for _ in range(3))
    assert texts == ["onetwo", "whole", "onetwo"]


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
