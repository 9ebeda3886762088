"""A server with keys and guards, a process of its own: `python -m tests.api.guarded FD KEYS ORIGIN ...`.

FD is a listening socket, KEYS a key file. All is as `mashbox run` makes it, but for the scripted model.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
from pathlib import Path

import uvloop

from mashbox import server
from mashbox.api.settings import ServeConfig
from mashbox.config import API_KEY_VARIABLE, ModelConfig, WorkerConfig
from mashbox.http.allowed import allow
from mashbox.http.keys import Keys

ALLOWED_HOSTS = ("box.example.com", ".lan.example")


def deployment(file: Path, origins: list[str]) -> server.Deployment:
    model = ModelConfig("scripted.gguf", context=8192, slots=2, threads=1)
    return server.Deployment(
        ServeConfig("org/scripted", "scripted.gguf", model.context, model.slots),
        WorkerConfig(model, backend="tests.scripted:ScriptedBackend"),
        paths=(),
        keys=Keys(file, os.environb.get(API_KEY_VARIABLE.encode(), b"")),
        allowed=allow("127.0.0.1", ALLOWED_HOSTS, origins, keyed=True),
    )


if __name__ == "__main__":
    logging.basicConfig(level="DEBUG", format="%(levelname)s %(message)s")
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with socket.socket(fileno=int(sys.argv[1])) as listener:
        guarded = deployment(Path(sys.argv[2]), sys.argv[3:])
        uvloop.run(server.run(guarded, listener, lambda facts: print("ready", flush=True)))
