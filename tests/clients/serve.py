"""The server under test, a process of its own: `python -m tests.clients.serve FD SCRIPT MODEL_ID CONTEXT`.

FD is a bound socket. Everything is what `mashbox run` starts but the model, which is a script
(`tests/model_script.py`).
"""

from __future__ import annotations

import logging
import socket
import sys
from pathlib import Path

import uvloop

from mashbox import machine, server
from mashbox.api.settings import ServeConfig
from mashbox.config import LogConfig, ModelConfig, WorkerConfig

SLOTS = 4


def main(descriptor: str, script: str, model_id: str, context: str) -> None:
    """Serve until a signal ends it."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    listener = socket.socket(fileno=int(descriptor))
    machine.listen(listener)
    deployment = server.Deployment(
        serve=ServeConfig(model_id, Path(script).name, int(context), SLOTS),
        worker=WorkerConfig(
            ModelConfig(path=script, context=int(context), slots=SLOTS, threads=1),
            backend="tests.model_script:ScriptedModel",
            log=LogConfig("warning"),
        ),
        paths=(Path(script),),
    )
    uvloop.run(server.run(deployment, listener, lambda facts: None))


if __name__ == "__main__":
    main(*sys.argv[1:])
