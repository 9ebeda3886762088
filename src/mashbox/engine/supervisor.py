"""Keeps one worker process alive: start, watch, restart with back-off, end.

A worker is dead when its stream ends, and hung when no heartbeat comes for 3 s or when its step
counter stands still for 60 s with work at hand; a hung one is killed.
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

from mashbox.config import WorkerConfig, child_environment
from mashbox.engine import ipc
from mashbox.engine.child import told_end
from mashbox.engine.types import (
    EMPTY_CACHE,
    CacheReport,
    Command,
    Heartbeat,
    LoadFailed,
    Loading,
    ModelFacts,
    Ready,
    RequestEvent,
    Shutdown,
    Silent,
    WorkerEvent,
)

log = logging.getLogger(__name__)

HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
"""Makes the C library ask for huge pages: reading the weights takes a fifth less time then."""
HEARTBEAT_TIMEOUT_S = 2.5
"""Found and killed within 3 s, with what it takes to look and to end."""
LOADING_TIMEOUT_S = 15.0
"""While a model loads, single library calls hold the interpreter for a second or two."""
STALL_TIMEOUT_S = 60.0
START_TIMEOUT_S = 60.0
"""For a new process to say its first word: it has to be read from a disk that may be slow."""
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
    kv_tokens: int = 0
    """Tokens that the requests in slots held at the last heartbeat."""
    cache: CacheReport = EMPTY_CACHE
    """Of the present worker."""


class Listener(Protocol):
    """Who is told what the worker says."""

    def receive(self, events: list[RequestEvent]) -> None:
        """Events of requests, in order."""
        ...

    def ready(self) -> None:
        """A worker takes requests from now on."""
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
        self._heard = False
        self._last_step = (0, 0.0)
        self._load_begun = time.monotonic()
        self._load_s = 2.0
        """How long the last load took; before the first one, a guess."""
        self.status = WorkerStatus()
        self._changed = asyncio.Event()

    def listen(self, listener: Listener) -> None:
        """Set who receives the requests' events; before `run`."""
        self._listener = listener

    def send(self, command: Command) -> None:
        """Hand a command to the worker; dropped when there is none (`lost` has been called then)."""
        self.send_frame(ipc.encode([command]))

    def send_frame(self, frame: bytes) -> None:
        """The same with a command that is encoded already."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(frame)

    @property
    def ready_in_s(self) -> float:
        """Seconds until the worker is likely to take requests, by the last load or this one's progress."""
        begun_s = time.monotonic() - self._load_begun
        if self.status.facts is None and self.status.progress:
            return begun_s / self.status.progress - begun_s
        return max(0.0, self._load_s - begun_s)

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
                self._load_begun = time.monotonic() + delay
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
        try:
            process, ended = await self._start()
        except OSError as error:  # no memory or no process id left, for example
            self._after(f"it cannot be started: {error.strerror or error}")
            return
        try:
            await self._watch(process, ended)
        finally:
            try:
                await self._end(process)
            finally:
                self._after(told_end(process.returncode))

    async def _start(self) -> tuple[asyncio.subprocess.Process, asyncio.Event]:
        self._load_begun = time.monotonic()
        ours, theirs = socket.socketpair()
        config = msgspec.json.encode(self._config).decode()
        with theirs:
            try:
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", "mashbox.engine.worker", str(theirs.fileno()), config),
                    stdin=asyncio.subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    env={**HUGE_PAGES, **child_environment()},
                    start_new_session=True,
                )
            except BaseException:
                ours.close()
                raise
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        self._last_beat, self._heard = self._load_begun, False
        self._last_step = (0, self._last_beat)
        self._update(pid=process.pid, progress=0.0, kv_tokens=0, cache=EMPTY_CACHE)
        self._transport, _ = await loop.create_connection(
            lambda: ipc.EventReceiver(self._receive, ended.set), sock=ours
        )
        return process, ended

    async def _watch(self, process: asyncio.subprocess.Process, ended: asyncio.Event) -> None:
        while not ended.is_set():
            asleep = time.monotonic()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), WATCH_S)
            self._excuse(time.monotonic() - asleep - WATCH_S)
            if reason := self._hung():
                log.error("worker %d is hung: %s; killing it", process.pid, reason)
                process.kill()
                return

    def _excuse(self, late_s: float) -> None:
        """This process was held up itself: what the worker said meanwhile may not have been read yet."""
        if late_s > WATCH_S:
            self._last_beat += late_s
            self._last_step = (self._last_step[0], self._last_step[1] + late_s)

    def _hung(self) -> str | None:
        now = time.monotonic()
        allowed = START_TIMEOUT_S
        if self._heard:
            allowed = HEARTBEAT_TIMEOUT_S if self.status.state == "ready" else LOADING_TIMEOUT_S
        if now - self._last_beat > allowed:
            return f"no heartbeat for {allowed:g} s"
        if now - self._last_step[1] > STALL_TIMEOUT_S:
            return f"no step for {STALL_TIMEOUT_S:.0f} s with work waiting"
        return None

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        """Make sure that the process is gone, by asking first."""
        self.send(Shutdown())
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SHUTDOWN_GRACE_S):
                    await process.wait()
        finally:  # also when cancelled here
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            if self._transport is not None:
                self._transport.close()
                self._transport = None

    def _after(self, how: str) -> None:
        first_load = self.status.state == "loading"
        if first_load and self.status.error is None:
            self._update(error=f"The worker ended while it loaded the model ({how}).")
        if self.status.error is not None:
            self._update(state="failed", pid=None)
        else:
            self._update(state="restarting", pid=None, restarts=self.status.restarts + 1)
        if self._listener is not None:
            self._listener.lost()

    def _receive(self, events: list[WorkerEvent]) -> None:
        self._last_beat, self._heard = time.monotonic(), True
        requests: list[RequestEvent] = []
        for event in events:
            match event:
                case Heartbeat():
                    self._beat(event)
                case CacheReport():
                    self._update(cache=event)
                case Silent():
                    self._last_beat += event.seconds
                case Loading():
                    self._update(progress=event.fraction)
                case Ready():
                    self._last_step = (0, self._last_beat)
                    self._load_s = self._last_beat - self._load_begun
                    self._update(state="ready", facts=event.facts, progress=1.0)
                    if self._listener is not None:
                        self._listener.ready()
                case LoadFailed() if self.status.state == "loading":
                    self._update(error=event.message)
                case LoadFailed():
                    log.error("the worker could not load the model again: %s", event.message)
                case _:
                    requests.append(event)
        if requests and self._listener is not None:
            self._listener.receive(requests)

    def _beat(self, beat: Heartbeat) -> None:
        if beat.kv_tokens != self.status.kv_tokens:
            self._update(kv_tokens=beat.kv_tokens)
        idle = beat.running == 0 and beat.waiting == 0
        if idle or beat.step != self._last_step[0]:
            self._last_step = (beat.step, self._last_beat)
