"""Our side: `python -m mashbox run`, and what its engine says about its own steps."""

from __future__ import annotations

import http.client
import sys
from dataclasses import dataclass
from pathlib import Path

from bench.config import Setup
from bench.process import HOST, Launch, free_port

STEP_SECONDS = "mashbox_engine_step_seconds_total"
LIBRARY_SECONDS = "mashbox_engine_library_seconds_total"


def launch(setup: Setup, logs: Path) -> Launch:
    """How to start our server; options not named here keep their defaults."""
    port = free_port()
    command = [sys.executable, "-m", "mashbox", "run", str(setup.model), "--port", str(port)]
    command += ["--ctx", str(setup.context), "--slots", str(setup.slots), "--threads", str(setup.threads)]
    return Launch("ours", command, port, logs / "ours.log", {})


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Seconds since the engine's start: inside steps, and of these inside calls of the model library."""

    steps: float
    library: float


def read_step_times(port: int) -> StepTimes | None:
    """The engine's two counters from GET /metrics; None when the server does not have them."""
    connection = http.client.HTTPConnection(HOST, port, timeout=5)
    try:
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
    finally:
        connection.close()
    return parse_step_times(text)


def parse_step_times(metrics: str) -> StepTimes | None:
    """The two counters from a Prometheus text; None unless both are there."""
    found: dict[str, float] = {}
    for line in metrics.splitlines():
        name, _, value = line.partition(" ")
        if name in (STEP_SECONDS, LIBRARY_SECONDS):
            found[name] = float(value)
    return StepTimes(found[STEP_SECONDS], found[LIBRARY_SECONDS]) if len(found) == 2 else None


def outside_share(before: StepTimes, after: StepTimes) -> float:
    """Part of the step time between two readings that was not spent in the library, 0 to 1."""
    steps = after.steps - before.steps
    return 1 - (after.library - before.library) / steps if steps > 0 else 0.0
