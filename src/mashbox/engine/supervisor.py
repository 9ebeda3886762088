"""Keeps one worker process alive: start, watch, restart with back-off, end.

A worker is dead when its stream ends, and hung when no heartbeat comes for 3 s (30 s while it loads)
or when its step counter stands still for 60 s with work at hand; a hung one is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import sys
import time
from dataclasses import dataclass, replace
from typing import Literal, Protocol

import msgspec

from mashbox.config import WorkerConfig
from mashbox.engine import ipc
from mashbox.engine.types import (
    Command,
    Heartbeat,
    LoadFailed,
    Loading,
    ModelFacts,
    Ready,
    RequestEvent,
    Shutdown,
    WorkerEvent,
)

log = logging.getLogger(__name__)

HEARTBEAT_TIMEOUT_S = 3.0
LOADING_TIMEOUT_S = 30.0
"""The same before it is ready: starting Python and loading a GPU's libraries hold heartbeats up."""
STALL_TIMEOUT_S = 60.0
WATCH_S = 0.25
SHUTDOWN_GRACE_S = 2.0
FIRST_DELAY_S = 0.2
LONGEST_DELAY_S = 10.0
STEADY_S = 60.0
"""A worker that lived this long earns the first, short delay again."""

WorkerState = Literal["loading", "ready", "restarting", "stopped", "failed"]


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """What is known of the worker now. `error` is set when `state` is failed."""

    state: WorkerState = "loading"
    pid: int | None = None
    restarts: int = 0
    progress: float = 0.0
    facts: ModelFacts | None = None
    error: str | None = None


class Listener(Protocol):
    """Who is told what the worker says."""

    def receive(self, events: list[RequestEvent]) -> None:
        """Events of requests, in order."""
        ...

    def lost(self) -> None:
        """The worker is gone; nothing more comes for the requests it had."""
        ...


class Supervisor:
    """Runs worker incarnations one after another until stopped."""

    def __init__(self, config: WorkerConfig) -> None:
        self._config = config
        self._listener: Listener | None = None
        self._transport: asyncio.Transport | None = None
        self._last_beat = 0.0
        self._last_step = (0, 0.0)
        self.status = WorkerStatus()
        self._changed = asyncio.Event()

    def listen(self, listener: Listener) -> None:
        """Set who receives the requests' events; before `run`."""
        self._listener = listener

    def send(self, command: Command) -> None:
        """Hand a command to the worker; dropped when there is none (`lost` has been called then)."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(ipc.encode([command]))

    async def until_settled(self) -> WorkerStatus:
        """Wait until the first load has ended, well or badly."""
        while self.status.state == "loading":
            self._changed.clear()
            await self._changed.wait()
        return self.status

    async def run(self) -> None:
        """Keep a worker running; returns only when the first load fails. Cancel to stop."""
        delay = FIRST_DELAY_S
        try:
            while True:
                begun = time.monotonic()
                await self._incarnation()
                if self.status.state == "failed":
                    return
                if time.monotonic() - begun > STEADY_S:
                    delay = FIRST_DELAY_S
                log.warning("the worker ended; starting it again in %.1f s", delay)
                await asyncio.sleep(delay)
                delay = min(delay * 2, LONGEST_DELAY_S)
        finally:
            if self.status.state != "failed":
                self._update(state="stopped", pid=None)

    def _update(self, **changes: object) -> None:
        self.status = replace(self.status, **changes)  # type: ignore[arg-type]
        self._changed.set()

    async def _incarnation(self) -> None:
        """One worker from start to end."""
        process, ended = await self._start()
        try:
            await self._watch(process, ended)
        finally:
            await self._end(process)
            self._after(process)

    async def _start(self) -> tuple[asyncio.subprocess.Process, asyncio.Event]:
        ours, theirs = socket.socketpair()
        config = msgspec.json.encode(self._config).decode()
        with theirs:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "mashbox.engine.worker", str(theirs.fileno()), config),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        self._last_beat = time.monotonic()
        self._update(pid=process.pid, progress=0.0)
        self._transport, _ = await loop.create_connection(
            lambda: ipc.EventReceiver(self._receive, ended.set), sock=ours
        )
        return process, ended

    async def _watch(self, process: asyncio.subprocess.Process, ended: asyncio.Event) -> None:
        while not ended.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), WATCH_S)
            if reason := self._hung():
                log.error("worker %d is hung: %s; killing it", process.pid, reason)
                process.kill()
                return

    def _hung(self) -> str | None:
        now = time.monotonic()
        ready = self.status.state == "ready"
        limit = HEARTBEAT_TIMEOUT_S if ready else LOADING_TIMEOUT_S
        if now - self._last_beat > limit:
            return f"no heartbeat for {limit:.0f} s"
        if ready and now - self._last_step[1] > STALL_TIMEOUT_S:
            return f"no step for {STALL_TIMEOUT_S:.0f} s with work waiting"
        return None

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        """Make sure that the process is gone, by asking first."""
        self.send(Shutdown())
        try:
            await asyncio.wait_for(asyncio.shield(process.wait()), SHUTDOWN_GRACE_S)
        except (TimeoutError, asyncio.CancelledError):
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        if self._transport is not None:
            self._transport.close()
            self._transport = None

    def _after(self, process: asyncio.subprocess.Process) -> None:
        error = self.status.error
        if self.status.facts is None:
            died = f"The worker ended while it loaded the model ({_describe(process)})."
            self._update(state="failed", pid=None, error=error or died)
        else:
            # It could be loaded once: a file that is being replaced or full memory may pass.
            if error is not None:
                log.error("the model cannot be loaded again: %s", error)
            self._update(state="restarting", pid=None, error=None, restarts=self.status.restarts + 1)
        if self._listener is not None:
            self._listener.lost()

    def _receive(self, events: list[WorkerEvent]) -> None:
        self._last_beat = time.monotonic()
        requests: list[RequestEvent] = []
        for event in events:
            match event:
                case Heartbeat():
                    self._beat(event)
                case Loading():
                    self._update(progress=event.fraction)
                case Ready():
                    self._last_step = (0, self._last_beat)
                    self._update(state="ready", facts=event.facts, progress=1.0)
                case LoadFailed():
                    self._update(error=event.message)
                case _:
                    requests.append(event)
        if requests and self._listener is not None:
            self._listener.receive(requests)

    def _beat(self, beat: Heartbeat) -> None:
        idle = beat.running == 0 and beat.waiting == 0
        if idle or beat.step != self._last_step[0]:
            self._last_step = (beat.step, self._last_beat)


def _describe(process: asyncio.subprocess.Process) -> str:
    code = process.returncode or 0
    return f"signal {-code}" if code < 0 else f"exit code {code}"
