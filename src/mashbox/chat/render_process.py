"""One process that renders a chat template, seen from the server."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
from collections import deque
from collections.abc import Callable

import msgspec

from mashbox.chat.render_wire import Reply, decode_reply
from mashbox.config import LogConfig
from mashbox.engine.child import told_end
from mashbox.engine.frames import FrameBuffer

log = logging.getLogger(__name__)

GRACE_S = 1.0
"""How long it may take to end once its stream has ended."""

_KEPT = ("PATH", "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "TZ")
"""What the processes see of the environment: nothing that may be secret."""


class EndedError(Exception):
    """The process is gone, or was made to go; `reason` says why, in the template's own terms."""

    def __init__(self, reason: str, in_time: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.in_time = in_time

    @classmethod
    def late(cls, seconds: float) -> EndedError:
        """It had so many seconds."""
        return cls(f"it runs for more than {seconds:g} seconds", in_time=False)


class _Replies(asyncio.Protocol):
    """The server's end of a process's stream."""

    def __init__(self, on_end: Callable[[], None]) -> None:
        self._on_end = on_end
        self._buffer = FrameBuffer()
        self._replies: deque[bytes] = deque()
        self.ended = False
        self._arrived = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        """Keep what is complete."""
        self._replies.extend(self._buffer.bodies(data))
        if self._replies:
            self._arrived.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """The process is gone."""
        self.ended = True
        self._arrived.set()
        self._on_end()

    async def next(self) -> bytes | None:
        """The next frame's body; None at the end."""
        while not self._replies:
            if self.ended:
                return None
            self._arrived.clear()
            await self._arrived.wait()
        return self._replies.popleft()


class RenderProcess:
    """One process, from its start to its end."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        transport: asyncio.Transport,
        replies: _Replies,
    ) -> None:
        self._process = process
        self._transport = transport
        self._replies = replies

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def gone(self) -> bool:
        """Whether its end was seen."""
        return self._replies.ended

    @classmethod
    async def start(
        cls, deadline_s: float, log_config: LogConfig, on_end: Callable[[], None]
    ) -> RenderProcess:
        """A new process, which ends when a rendering takes longer. Raises OSError."""
        ours, theirs = socket.socketpair()
        with theirs:
            # The stream first: nothing may come between a process and the handle on it.
            loop = asyncio.get_running_loop()
            transport, replies = await loop.create_connection(lambda: _Replies(on_end), sock=ours)
            try:
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", "mashbox.chat.render_worker"),
                    *(str(theirs.fileno()), str(deadline_s), msgspec.json.encode(log_config).decode()),
                    stdin=asyncio.subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    env={name: os.environ[name] for name in _KEPT if name in os.environ},
                )
            except BaseException:
                transport.close()
                raise
        return cls(process, transport, replies)

    async def ask(self, frame: bytes, seconds: float, wait_s: float) -> Reply:
        """Send a frame and wait for the reply. The process itself has so many `seconds` for it.

        Raises EndedError: the process is gone then.
        """
        self._transport.write(frame)
        try:
            async with asyncio.timeout(wait_s):
                body = await self._replies.next()
        except TimeoutError:
            await self.end()
            raise EndedError.late(seconds) from None
        try:
            if body is not None:
                return decode_reply(body)
        except msgspec.DecodeError:
            log.error("process %d of the chat template writes no replies; killing it", self.pid)
        await self.end()
        if self._process.returncode == -signal.SIGALRM:
            raise EndedError.late(seconds)
        raise EndedError(f"its process ended ({told_end(self._process.returncode)})", in_time=True)

    async def end(self) -> None:
        """Make sure that it is gone."""
        gone = self.gone
        self._transport.close()
        if gone:  # it ends by itself, and how it does is told
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(GRACE_S):
                    await self._process.wait()
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()
