"""The wire between server and worker: frames of a 4-byte big-endian length and a msgpack list of messages.

One unix stream per worker incarnation. End-of-file is the death notice in both directions, so
nothing stale can reach a new worker.
"""

from __future__ import annotations

import asyncio
import select
import socket
import struct
from collections.abc import Callable, Sequence

import msgspec

from mashbox.engine.types import Command, WorkerEvent

_LENGTH = struct.Struct(">I")
_COMMANDS = msgspec.msgpack.Decoder(list[Command])
_EVENTS = msgspec.msgpack.Decoder(list[WorkerEvent])
_ENCODER = msgspec.msgpack.Encoder()


def encode(messages: Sequence[Command] | Sequence[WorkerEvent]) -> bytes:
    """One frame."""
    body = _ENCODER.encode(messages)
    return _LENGTH.pack(len(body)) + body


class EventReceiver(asyncio.Protocol):
    """The server's end: calls back with each frame's events as they come, and once at the end.

    Callbacks instead of a reader task: a token costs no task switch here.
    """

    def __init__(self, on_events: Callable[[list[WorkerEvent]], None], on_end: Callable[[], None]) -> None:
        self._on_events = on_events
        self._on_end = on_end
        self._buffer = bytearray()

    def data_received(self, data: bytes) -> None:
        """Cut complete frames off the buffer."""
        buffer = self._buffer
        buffer += data
        start = 0
        while len(buffer) - start >= _LENGTH.size:
            end = start + _LENGTH.size + _LENGTH.unpack_from(buffer, start)[0]
            if end > len(buffer):
                break
            self._on_events(_EVENTS.decode(memoryview(buffer)[start + _LENGTH.size : end]))
            start = end
        del buffer[:start]

    def connection_lost(self, exc: Exception | None) -> None:
        """The worker is gone."""
        self._on_end()


def read_commands(stream: socket.socket) -> list[Command] | None:
    """The server's next frame, blocking; None when it has closed the stream."""
    head = _receive(stream, _LENGTH.size)
    body = None if head is None else _receive(stream, _LENGTH.unpack(head)[0])
    return None if body is None else _COMMANDS.decode(body)


def _receive(stream: socket.socket, size: int) -> bytes | None:
    data = bytearray()
    readable = select.poll()
    # A thread that blocks in recv is woken whenever the other end takes something: once for every token.
    readable.register(stream, select.POLLIN)
    while len(data) < size:
        readable.poll()
        try:
            part = stream.recv(size - len(data))
        except ConnectionError:
            return None
        if not part:
            return None
        data += part
    return bytes(data)
