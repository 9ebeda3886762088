"""The worker process: a model, the engine's loop, and one stream to the server.

Started by the supervisor as `python -m mashbox.engine.worker FD CONFIG`. The main thread steps the
engine; one thread reads commands, three tokenise, one sends heartbeats. When the server's end
of the stream closes, the process ends at once, whatever it is doing.
"""

from __future__ import annotations

import importlib
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from queue import SimpleQueue
from typing import NoReturn

import msgspec

from mashbox.config import ModelConfig, WorkerConfig
from mashbox.engine import ipc
from mashbox.engine.backend import Backend
from mashbox.engine.constraint import GrammarError
from mashbox.engine.core import Core, Generation
from mashbox.engine.fair_line import FairLine
from mashbox.engine.preparer import Preparer
from mashbox.engine.prompt_cache import PromptCache
from mashbox.engine.types import (
    Accepted,
    Cancel,
    Command,
    Count,
    Counted,
    Failed,
    Heartbeat,
    Invalid,
    LoadFailed,
    Loading,
    Ready,
    Refused,
    RequestEvent,
    Shutdown,
    Silent,
    Submit,
    WorkerEvent,
)
from mashbox.errors import ConfigError
from mashbox.logs import setup as logs

log = logging.getLogger(__name__)

HEARTBEAT_S = 0.5
REST_AFTER_S = 5.0
"""Idle time after which states in slots are saved: a follow-up that comes sooner must not wait for it."""
SWITCH_INTERVAL_S = 0.0005
"""How long the engine's thread may wait for the interpreter while the I/O thread works."""


class Outbox:
    """Sends frames; any thread may. The server's death ends the process here, too.

    The engine's own events go out in a thread of their own, in order, while the library computes: a send
    takes as long as everything else that the engine does between two calls of the library.
    """

    def __init__(self, stream: socket.socket, leave: Callable[[int], object] = os._exit) -> None:
        self._stream = stream
        self._leave = leave
        self._lock = threading.Lock()
        self._posts: SimpleQueue[Sequence[WorkerEvent] | None] = SimpleQueue()
        self._poster = threading.Thread(target=self._send_posts, daemon=True)
        self._poster.start()

    def post(self, events: Sequence[WorkerEvent]) -> None:
        """Have events sent soon, after all that were posted before."""
        self._posts.put(events)

    def close(self) -> None:
        """Return when all that was posted is sent; nothing may be posted after it."""
        self._posts.put(None)
        self._poster.join()

    def _send_posts(self) -> None:
        """A bug here ends the process: a mute worker would look well."""
        try:
            while (events := self._posts.get()) is not None:
                self.send(events)
        except Exception:
            try:
                log.exception("the worker cannot send its events")
            finally:  # without memory the log fails, too
                self._leave(1)

    def send(self, events: Sequence[WorkerEvent]) -> None:
        """Send events now."""
        frame = ipc.encode(events)
        try:
            with self._lock:
                self._stream.sendall(frame)
        except OSError:
            self._leave(0)


class Work:
    """Commands that are to be prepared: one thread adds, one takes. Tenants take turns."""

    def __init__(self) -> None:
        self._line: FairLine[Submit | Count] = FairLine()
        self._changed = threading.Condition()

    def add(self, command: Submit | Count) -> None:
        """At the end of its tenant's line."""
        with self._changed:
            self._line.add(command)
            self._changed.notify()

    def take(self) -> Submit | Count:
        """The next one, as soon as there is one."""
        with self._changed:
            while not self._line:
                self._changed.wait()
            command = next(iter(self._line))
            self._line.take(command)
            return command


class Inbox:
    """Reads commands in one thread, prepares requests in others, and hands both to the engine's thread.

    So a long prompt that is being tokenised holds up no cancel. Counts have a thread of their own, since they
    have no longest prompt, and so have requests with a grammar. Invariant: an id is in `_preparing`
    from its Submit until the engine has it, and a Cancel in that time makes it be dropped. So is a count.
    """

    def __init__(
        self,
        stream: socket.socket,
        backend: Backend,
        outbox: Outbox,
        leave: Callable[[int], object] = os._exit,
    ) -> None:
        self._stream = stream
        self._leave = leave
        self._backend = backend
        self._outbox = outbox
        self._preparer = Preparer(backend, lambda seconds: outbox.send([Silent(seconds)]))
        self._submits = Work()
        self._constrained = Work()
        self._counts = Work()
        self._preparing: set[str] = set()
        self._lock = threading.Lock()
        self._ready: deque[Generation | str] = deque()
        self._wake = threading.Event()

    def start(self) -> None:
        """Begin to read."""
        works = (
            self._read,
            partial(self._prepare_all, self._submits),
            partial(self._prepare_all, self._constrained),
            partial(self._prepare_all, self._counts),
        )
        for work in works:
            threading.Thread(target=self._run, args=(work,), daemon=True).start()

    def drain(self, core: Core) -> None:
        """Give the engine what has come in: new requests, and ids to cancel."""
        while self._ready:
            item = self._ready.popleft()
            if isinstance(item, str):
                core.cancel(item)
            else:
                core.submit(item)

    def wait(self, seconds: float | None) -> bool:
        """Sleep until something has come in; False when nothing has after so many seconds."""
        came = self._wake.wait(seconds)
        self._wake.clear()
        return came

    def _run(self, work: Callable[[], None]) -> None:
        """A bug in a thread ends the process: a deaf worker would look well."""
        code = 1
        try:
            work()
            code = 0
        except Exception:
            log.exception("the worker cannot read its commands")
        finally:  # without memory the log fails, too
            self._leave(code)

    def _read(self) -> None:
        """Until the server goes away."""
        while (commands := ipc.read_commands(self._stream)) is not None:
            for command in commands:
                self._take(command)

    def _take(self, command: Command) -> None:
        match command:
            case Shutdown():
                self._leave(0)
            case Cancel():
                with self._lock:
                    self._preparing.discard(command.id)
                    self._hand_over(command.id)
            case Submit() | Count():
                with self._lock:
                    self._preparing.add(command.id)
                self._work_of(command).add(command)

    def _work_of(self, command: Submit | Count) -> Work:
        if isinstance(command, Count):
            return self._counts
        return self._submits if command.constraint is None else self._constrained

    def _hand_over(self, item: Generation | str) -> None:
        self._ready.append(item)
        self._wake.set()

    def _prepare_all(self, work: Work) -> None:
        while True:
            command = work.take()
            if command.id not in self._preparing:
                continue
            try:
                event, generation = self._prepare(command, time.monotonic())
            except Exception:
                log.exception("cannot prepare request %s", command.id)
                event, generation = Failed(command.id, "The prompt could not be read."), None
            self._answer(event, generation)

    def _prepare(self, command: Submit | Count, arrived: float) -> tuple[RequestEvent, Generation | None]:
        """What to say about a command, and the request that the engine is to run, if it is one."""
        context = self._backend.facts.context
        prompt = self._backend.tokenize(command.segments)
        if isinstance(command, Count):
            return Counted(command.id, len(prompt)), None
        if not prompt or len(prompt) >= context:
            return Refused(command.id, len(prompt), context), None
        try:
            generation = self._preparer.prepare(command, prompt, arrived)
        except GrammarError as error:
            return Invalid(command.id, str(error)), None
        return Accepted(command.id, len(prompt)), generation

    def _answer(self, event: RequestEvent, generation: Generation | None) -> None:
        """Say it, and hand the request over, unless it was cancelled meanwhile."""
        with self._lock:
            if event.id not in self._preparing:
                return
            self._preparing.discard(event.id)
            self._outbox.send([event])
            if generation is not None:
                self._hand_over(generation)


class Pulse:
    """Signs of life twice a second, from the first moment on."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self.core: Core | None = None

    def run(self) -> None:
        """For ever."""
        while True:
            core = self.core
            counts = (0,) * 4 if core is None else (core.steps, core.running, core.waiting, core.kv_tokens)
            self._outbox.send([Heartbeat(*counts)])
            time.sleep(HEARTBEAT_S)


def leave(code: int) -> None:
    """End the process at once, but for what is still to be logged."""
    try:
        logging.shutdown()
    finally:
        os._exit(code)


def load_backend(config: WorkerConfig, outbox: Outbox) -> Backend:
    """Load the model and tell the server how far it is."""
    module, _, name = config.backend.partition(":")
    factory: Callable[[ModelConfig, Callable[[float], None]], Backend]
    factory = getattr(importlib.import_module(module), name)
    return factory(config.model, lambda fraction: outbox.send([Loading(fraction)]))


def serve(stream: socket.socket, config: WorkerConfig) -> None:
    """Load, then step for ever; leaves only through the process's end."""
    outbox = Outbox(stream, leave)
    pulse = Pulse(outbox)
    # The pulse ends the process when the server goes away, also while the model loads.
    threading.Thread(target=pulse.run, daemon=True).start()
    try:
        backend = load_backend(config, outbox)
        cache = prompt_cache(backend, config.model)
    except ConfigError as error:
        outbox.send([LoadFailed(str(error))])
        return
    # If the model's process dies of a request, the server must know that it ran: no thread in between.
    core = Core(backend, cache, outbox.post, time.monotonic, lambda started: outbox.send([started]))
    inbox = Inbox(stream, backend, outbox, leave)
    inbox.start()
    outbox.send([Ready(backend.facts)])
    pulse.core = core
    run(core, inbox)


def run(core: Core, inbox: Inbox) -> NoReturn:
    """Step while there is work; save what the slots hold when there is none for a while."""
    rest_in: float | None = REST_AFTER_S
    while True:
        inbox.drain(core)
        if not core.idle:
            core.step()
            rest_in = REST_AFTER_S
        elif not inbox.wait(rest_in):
            rest_in = 0.0 if core.rest() else None


def prompt_cache(backend: Backend, config: ModelConfig) -> PromptCache:
    """The cache of one model. Its images are of no use to another one, or with other settings.

    Raises ConfigError when the system refuses so much memory.
    """
    namespace = f"{config}|{backend.facts.build}|{backend.facts.description}"
    try:
        return PromptCache(backend, config.cache_ram_mib << 20, namespace.encode())
    except (OSError, OverflowError) as error:
        mib = config.cache_ram_mib
        raise ConfigError(f"Cannot reserve {mib} MiB for saved prompt states: {error}.") from error


def main() -> None:
    """Entry point; see the module's docstring."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    config = msgspec.json.decode(sys.argv[2], type=WorkerConfig)
    # The library may abort the process after an error: its line must be out by then.
    logs.start(config.log, "worker", errors_wait_s=0.2)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    serve(socket.socket(fileno=int(sys.argv[1])), config)


if __name__ == "__main__":
    main()
