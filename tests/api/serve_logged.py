"""A server whose log is looked at: `python -m tests.api.serve_logged FD LOG_CONFIG_AS_JSON`.

All of `mashbox run` but the command line and the model.
"""

from __future__ import annotations

import socket
import sys

import msgspec
import uvloop

from mashbox import machine, server
from mashbox.api.settings import ServeConfig
from mashbox.config import LogConfig, ModelConfig, WorkerConfig
from mashbox.logs import setup as logs

CONTEXT, SLOTS = 8192, 2


def main(descriptor: str, config: str) -> None:
    """Serve until a signal ends it."""
    log_config = msgspec.json.decode(config, type=LogConfig)
    logs.start(log_config)
    listener = socket.socket(fileno=int(descriptor))
    machine.listen(listener)
    model = ModelConfig("scripted.gguf", CONTEXT, SLOTS, threads=1)
    deployment = server.Deployment(
        ServeConfig("org/scripted", "scripted.gguf", CONTEXT, SLOTS),
        WorkerConfig(model, backend="tests.scripted:ScriptedBackend", log=log_config),
        paths=(),
    )
    uvloop.run(server.run(deployment, listener, lambda facts: None))


if __name__ == "__main__":
    main(*sys.argv[1:])
