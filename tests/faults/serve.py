"""A server with as many slots as wanted, a process of its own: `python -m tests.faults.serve FD SETUP`.

SETUP is JSON. All is as `mashbox run` makes it, but for the command line. SIGUSR1 makes it print how many
tasks it has.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from dataclasses import dataclass
from pathlib import Path

import msgspec
import uvloop

from mashbox import machine, server
from mashbox.api.settings import ServeConfig
from mashbox.config import LogConfig, ModelConfig, WorkerConfig
from mashbox.http.keys import Keys
from mashbox.logs import setup as logs


@dataclass(frozen=True)
class Setup:
    """What runs."""

    model: str = "scripted.gguf"
    backend: str = "tests.scripted:ScriptedBackend"
    slots: int = 8
    context: int = 2048
    keys: str | None = None
    """A key file."""


def deployment(setup: Setup) -> server.Deployment:
    log = LogConfig(level="critical")
    model = ModelConfig(setup.model, setup.context, setup.slots, threads=1)
    return server.Deployment(
        ServeConfig("org/faults", setup.model, setup.context, setup.slots),
        WorkerConfig(model, backend=setup.backend, log=log),
        paths=(),
        keys=Keys(Path(setup.keys) if setup.keys else None),
    )


async def main(listener: socket.socket, setup: Setup) -> None:
    """Serve until a signal ends it."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGUSR1, lambda: print(len(asyncio.all_tasks()), flush=True))
    await server.run(deployment(setup), listener, lambda facts: print("ready", flush=True))


if __name__ == "__main__":
    setup = msgspec.json.decode(sys.argv[2], type=Setup)
    logs.start(LogConfig(level="critical"))
    with socket.socket(fileno=int(sys.argv[1])) as listener:
        machine.listen(listener)
        uvloop.run(main(listener, setup))
