"""What is written to a client: watched until the client has taken it."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import socket
import struct
import sys
import termios
from collections.abc import Callable
from typing import Any

_log = logging.getLogger(__name__)

HIGH_WATER = 64 * 1024
"""Bytes that may wait in the process for one client; a stream that has more pauses."""
LOOKS = 6
"""How often a client that has not taken everything is looked at before it counts as stuck."""


class WatchedTransport(asyncio.Transport):
    """A connection's transport. Aborts when its client takes no byte for `stalled_s` seconds.

    Taken is what the client's kernel has acknowledged: what was written, less what waits in this
    process and in ours. `unread` says whether the client may still be sending when we close: then it
    is listened to for `linger_s` more, as unread bytes would make the kernel take our answer back.
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        loop: asyncio.AbstractEventLoop,
        *,
        stalled_s: float,
        linger_s: float,
        unread: Callable[[], bool],
    ) -> None:
        super().__init__()
        self._transport = transport
        self._loop = loop
        self._stalled_s = stalled_s
        self._linger_s = linger_s
        self._unread = unread
        self._fd = _tcp_descriptor(transport)
        self._written = 0
        self._taken = 0
        self._since = 0.0
        self._look: asyncio.TimerHandle | None = None
        self._end: asyncio.TimerHandle | None = None
        transport.set_write_buffer_limits(high=HIGH_WATER)

    def write(self, data: Any) -> None:
        """Called for every token: no needless work here."""
        self._written += len(data)
        self._transport.write(data)
        if self._look is None:
            self._since = self._loop.time()
            self._look = self._loop.call_later(self._stalled_s / LOOKS, self._look_again)

    def close(self) -> None:
        """Close once everything is sent, and once the client has had time to read it."""
        if self._end is not None or self._transport.is_closing() or not self._unread():
            self._transport.close()
            return
        self._end = self._loop.call_later(self._linger_s, self._transport.abort)
        self._transport.write_eof()
        self._transport.resume_reading()

    def abort(self) -> None:
        """Close at once; what is unsent is dropped."""
        self._transport.abort()

    def lost(self) -> None:
        """The connection is gone."""
        for timer in (self._look, self._end):
            if timer is not None:
                timer.cancel()
        self._fd = -1

    def is_closing(self) -> bool:
        """Whether no more requests are answered."""
        return self._end is not None or self._transport.is_closing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """See asyncio."""
        return self._transport.get_extra_info(name, default)

    def pause_reading(self) -> None:
        """See asyncio."""
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """See asyncio."""
        self._transport.resume_reading()

    def _look_again(self) -> None:
        unsent = self._unsent()
        now = self._loop.time()
        if self._written - unsent > self._taken:
            self._taken = self._written - unsent
            self._since = now
        if not unsent:
            self._look = None
        elif now - self._since >= self._stalled_s:
            _log.info(
                "a client took nothing for %.0f s with %d bytes unsent: left", now - self._since, unsent
            )
            self._drop()
        else:
            self._look = self._loop.call_later(self._stalled_s / LOOKS, self._look_again)

    def _drop(self) -> None:
        """Abort; the kernel, too, forgets what it still has to send."""
        if self._fd >= 0:
            found = self._transport.get_extra_info("socket")
            found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._transport.abort()

    def _unsent(self) -> int:
        """Bytes that the client has not acknowledged, here and in the kernel."""
        waiting = self._transport.get_write_buffer_size()
        if self._fd < 0 or (self._transport.is_closing() and not waiting):
            return waiting
        queue = fcntl.ioctl(self._fd, termios.TIOCOUTQ, bytes(4))
        return waiting + int.from_bytes(queue, sys.byteorder)


def _tcp_descriptor(transport: asyncio.Transport) -> int:
    """The socket's descriptor where the kernel tells what is unacknowledged, else -1."""
    found = transport.get_extra_info("socket")
    if sys.platform != "linux" or found is None or found.family not in (socket.AF_INET, socket.AF_INET6):
        return -1
    descriptor: int = found.fileno()
    return descriptor
