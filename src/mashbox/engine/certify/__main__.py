"""The gate's process, started as `python -m mashbox.engine.certify FD CONFIG`. It ends when nobody reads."""

from __future__ import annotations

import importlib
import logging
import os
import select
import signal
import sys
import threading

import msgspec

from mashbox.config import ModelConfig
from mashbox.engine.certify.gate import Gate
from mashbox.engine.certify.messages import GateConfig, Refused, Say, Speaker
from mashbox.engine.certify.probe import ClosableBackend
from mashbox.errors import ConfigError


def run(config: GateConfig, say: Say) -> None:
    """Run the gate on the backend that the configuration names."""
    module, _, name = config.backend.partition(":")
    factory = getattr(importlib.import_module(module), name)

    def load(model: ModelConfig) -> ClosableBackend:
        backend: ClosableBackend = factory(model, lambda fraction: None)
        return backend

    try:
        Gate(config, load, say).run()
    except ConfigError as error:
        say(Refused(str(error)))


def _end_when_nobody_reads(pipe: int) -> None:
    """A check may take many minutes, so that the next message would come late."""
    watch = select.poll()
    watch.register(pipe, 0)  # that the reader has closed its end is always told
    watch.poll()
    os._exit(1)


def main() -> None:
    """Entry point; see the module's docstring."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_when_nobody_reads, args=(int(sys.argv[1]),), daemon=True).start()
    config = msgspec.json.decode(sys.argv[2], type=GateConfig)
    logging.basicConfig(level=logging.ERROR, format="%(levelname)s gate: %(message)s")
    with os.fdopen(int(sys.argv[1]), "wb") as pipe:
        run(config, Speaker(pipe))


if __name__ == "__main__":
    main()
