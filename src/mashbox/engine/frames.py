"""Frames on a stream between two of our processes: a 4-byte big-endian length, then so many bytes."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterator

_LENGTH = struct.Struct(">I")


def framed(body: bytes) -> bytes:
    """One frame."""
    return _LENGTH.pack(len(body)) + body


class FrameBuffer:
    """Bytes as they come, cut into frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def bodies(self, data: bytes) -> Iterator[bytes]:
        """Take some more, and give the frames that are complete; all must be taken."""
        buffer = self._buffer
        buffer += data
        start = 0
        while len(buffer) - start >= _LENGTH.size:
            body = start + _LENGTH.size
            end = body + _LENGTH.unpack_from(buffer, start)[0]
            if end > len(buffer):
                break
            yield bytes(memoryview(buffer)[body:end])
            start = end
        del buffer[:start]


def receive(stream: socket.socket, wait: Callable[[], object] = lambda: None) -> bytes | None:
    """The next frame's body; None at the stream's end. Calls `wait` before each read. Raises OSError."""
    head = _read(stream, _LENGTH.size, wait)
    return None if head is None else _read(stream, _LENGTH.unpack(head)[0], wait)


def _read(stream: socket.socket, size: int, wait: Callable[[], object]) -> bytes | None:
    data = bytearray(size)
    view, filled = memoryview(data), 0
    while filled < size:
        wait()
        count = stream.recv_into(view[filled:])
        if not count:
            return None
        filled += count
    return bytes(data)
