"""The worker process: a model, the engine's loop, and one stream to the server.

Started by the supervisor as `python -m mashbox.engine.worker FD CONFIG`. The main thread steps the
engine; an I/O thread reads commands and tokenises; a third sends heartbeats. When the server's end
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

import msgspec

from mashbox.config import ModelConfig, WorkerConfig
from mashbox.engine import ipc
from mashbox.engine.backend import Backend
from mashbox.engine.core import Core, Generation
from mashbox.engine.sampling import Sampler
from mashbox.engine.text import TextAssembler
from mashbox.engine.types import (
    Accepted,
    Cancel,
    Command,
    Failed,
    Heartbeat,
    LoadFailed,
    Loading,
    Ready,
    Refused,
    Shutdown,
    Submit,
    WorkerEvent,
)
from mashbox.errors import ConfigError

log = logging.getLogger(__name__)

HEARTBEAT_S = 0.5
SWITCH_INTERVAL_S = 0.0005
"""How long the engine's thread may wait for the interpreter while the I/O thread works."""


class Outbox:
    """Sends frames; any thread may. The server's death ends the process here, too."""

    def __init__(self, stream: socket.socket) -> None:
        self._stream = stream
        self._lock = threading.Lock()

    def send(self, events: Sequence[WorkerEvent]) -> None:
        frame = ipc.encode(events)
        try:
            with self._lock:
                self._stream.sendall(frame)
        except OSError:
            os._exit(0)


class Inbox:
    """The I/O thread: reads commands, prepares requests, and hands them to the engine's thread."""

    def __init__(self, stream: socket.socket, backend: Backend, outbox: Outbox) -> None:
        self._stream = stream
        self._backend = backend
        self._outbox = outbox
        self._ready: deque[Generation | str] = deque()
        self._wake = threading.Event()

    def drain(self, core: Core) -> None:
        """Give the engine what has come in: new requests, and ids to cancel."""
        while self._ready:
            item = self._ready.popleft()
            if isinstance(item, str):
                core.cancel(item)
            else:
                core.submit(item)

    def wait(self) -> None:
        """Sleep until something has come in."""
        self._wake.wait()
        self._wake.clear()

    def run(self) -> None:
        """Read until the server goes away."""
        while (commands := ipc.read_commands(self._stream)) is not None:
            for command in commands:
                self._take(command)
            self._wake.set()
        os._exit(0)

    def _take(self, command: Command) -> None:
        if isinstance(command, Shutdown):
            os._exit(0)
        if isinstance(command, Cancel):
            self._ready.append(command.id)
            return
        try:
            self._prepare(command)
        except Exception:
            log.exception("cannot prepare request %s", command.id)
            self._outbox.send([Failed(command.id, "The prompt could not be read.")])

    def _prepare(self, command: Submit) -> None:
        arrived = time.monotonic()
        prompt = self._backend.tokenize(command.segments)
        context = self._backend.facts.context
        if not prompt or len(prompt) >= context:
            self._outbox.send([Refused(command.id, len(prompt), context)])
            return
        room = context - len(prompt)
        generation = Generation(
            id=command.id,
            prompt=prompt,
            limit=room if command.max_tokens is None else min(command.max_tokens, room),
            sampler=Sampler(command.sampling, prompt),
            text=TextAssembler(command.stop),
            arrived=arrived,
        )
        self._outbox.send([Accepted(command.id, len(prompt))])
        self._ready.append(generation)


def send_heartbeats(core: Core, outbox: Outbox) -> None:
    """A sign of life twice a second, for ever."""
    while True:
        outbox.send([Heartbeat(core.steps, core.running, core.waiting)])
        time.sleep(HEARTBEAT_S)


def watch_loading(stream: socket.socket, outbox: Outbox, loaded: threading.Event) -> None:
    """Heartbeats while the model loads; end the process if the server goes away (nothing else comes then)."""
    while not loaded.is_set():
        outbox.send([Heartbeat(0, 0, 0)])
        stream.settimeout(HEARTBEAT_S)
        try:
            if not stream.recv(1, socket.MSG_PEEK):
                os._exit(0)
            loaded.wait(HEARTBEAT_S)
        except TimeoutError:
            continue
        except OSError:
            os._exit(0)


def load_backend(config: WorkerConfig, outbox: Outbox) -> Backend:
    """Load the model and tell the server how far it is."""
    module, _, name = config.backend.partition(":")
    factory: Callable[[ModelConfig, Callable[[float], None]], Backend]
    factory = getattr(importlib.import_module(module), name)
    return factory(config.model, lambda fraction: outbox.send([Loading(fraction)]))


def serve(stream: socket.socket, config: WorkerConfig) -> None:
    """Load, then step for ever; leaves only through the process's end."""
    outbox = Outbox(stream)
    loaded = threading.Event()
    watcher = threading.Thread(target=watch_loading, args=(stream, outbox, loaded), daemon=True)
    watcher.start()
    try:
        backend = load_backend(config, outbox)
    except ConfigError as error:
        outbox.send([LoadFailed(str(error))])
        return
    loaded.set()
    watcher.join()
    stream.settimeout(None)
    core = Core(backend, outbox.send, time.monotonic)
    inbox = Inbox(stream, backend, outbox)
    threading.Thread(target=inbox.run, daemon=True).start()
    outbox.send([Ready(backend.facts)])
    threading.Thread(target=send_heartbeats, args=(core, outbox), daemon=True).start()
    while True:
        inbox.drain(core)
        if core.idle:
            inbox.wait()
        else:
            core.step()


def main() -> None:
    """Entry point; see the module's docstring."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    config = msgspec.json.decode(sys.argv[2], type=WorkerConfig)
    logging.basicConfig(
        level=config.log_level.upper(), format="%(asctime)s %(levelname)s worker: %(message)s"
    )
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    serve(socket.socket(fileno=int(sys.argv[1])), config)


if __name__ == "__main__":
    main()
