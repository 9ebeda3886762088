"""The port: had early, opened late."""

from __future__ import annotations

import contextlib
import select
import socket

import pytest

from mashbox import machine
from mashbox.errors import ConfigError


def test_a_bound_port_refuses_clients_until_it_listens() -> None:
    with machine.bind("127.0.0.1", 0) as listener:
        address = listener.getsockname()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address, timeout=2)
        machine.listen(listener)
        socket.create_connection(address, timeout=2).close()


def test_a_port_that_listens_cannot_be_bound_or_listened_on() -> None:
    with machine.bind("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with machine.bind("127.0.0.1", port) as second:
            machine.listen(first)
            with pytest.raises(ConfigError, match=f"port {port}: Address already in use"):
                machine.listen(second)
        with pytest.raises(ConfigError, match=f"port {port}: Address already in use"):
            machine.bind("127.0.0.1", port)


def test_a_client_that_takes_nothing_is_dropped_though_bytes_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "UNREAD_TIMEOUT_MS", 500)
    with machine.bind("127.0.0.1", 0) as listener:
        machine.listen(listener)
        with socket.create_connection(listener.getsockname()), listener.accept()[0] as accepted:
            accepted.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                while accepted.send(b"x" * 65536):
                    pass
            poll = select.poll()
            poll.register(accepted, 0)
            assert poll.poll(10_000)
