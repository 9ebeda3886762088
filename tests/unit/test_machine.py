"""The listening socket."""

from __future__ import annotations

import contextlib
import select
import socket

import pytest

from mashbox import machine


def test_a_client_that_takes_nothing_is_dropped_though_bytes_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "UNREAD_TIMEOUT_MS", 500)
    with machine.listen("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            accepted.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                while accepted.send(b"x" * 65536):
                    pass
            poll = select.poll()
            poll.register(accepted, 0)
            assert poll.poll(10_000)
