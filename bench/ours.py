"""Our side: `python -m mashbox run`."""

from __future__ import annotations

import sys
from pathlib import Path

from bench.config import Setup
from bench.process import Launch, free_port


def launch(setup: Setup, logs: Path) -> Launch:
    """How to start our server; options not named here keep their defaults."""
    port = free_port()
    command = [sys.executable, "-m", "mashbox", "run", str(setup.model), "--port", str(port)]
    command += ["--ctx", str(setup.context), "--slots", str(setup.slots), "--threads", str(setup.threads)]
    return Launch("ours", command, port, logs / "ours.log", {})
