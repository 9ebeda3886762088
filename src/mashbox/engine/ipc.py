"""The wire between server and worker: frames with a msgpack list of messages each.

One unix stream per worker incarnation. End-of-file is the death notice in both directions, so
nothing stale can reach a new worker.
"""

from __future__ import annotations

import asyncio
import select
import socket
from collections.abc import Callable, Sequence

import msgspec

from mashbox.engine.frames import FrameBuffer, framed, receive
from mashbox.engine.types import Command, WorkerEvent

_COMMANDS = msgspec.msgpack.Decoder(list[Command])
_EVENTS = msgspec.msgpack.Decoder(list[WorkerEvent])
_ENCODER = msgspec.msgpack.Encoder()


def encode(messages: Sequence[Command] | Sequence[WorkerEvent]) -> bytes:
    """One frame."""
    return framed(_ENCODER.encode(messages))


class EventReceiver(asyncio.Protocol):
    """The server's end: calls back with each frame's events as they come, and once at the end.

    Callbacks instead of a reader task: a token costs no task switch here.
    """

    def __init__(self, on_events: Callable[[list[WorkerEvent]], None], on_end: Callable[[], None]) -> None:
        self._on_events = on_events
        self._on_end = on_end
        self._buffer = FrameBuffer()

    def data_received(self, data: bytes) -> None:
        """Hand on what is complete."""
        for body in self._buffer.bodies(data):
            self._on_events(_EVENTS.decode(body))

    def connection_lost(self, exc: Exception | None) -> None:
        """The worker is gone."""
        self._on_end()


def read_commands(stream: socket.socket) -> list[Command] | None:
    """The server's next frame, blocking; None when it has closed the stream."""
    readable = select.poll()
    # A thread that blocks in recv is woken whenever the other end takes something: once for every token.
    readable.register(stream, select.POLLIN)
    try:
        body = receive(stream, readable.poll)
    except ConnectionError:
        return None
    return None if body is None else _COMMANDS.decode(body)
