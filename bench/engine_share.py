"""How much of our engine's time is its own, and not the model library's."""

from __future__ import annotations

import time
from dataclasses import dataclass

from bench.compare import Side
from bench.measure import Decode
from bench.ours import outside_share, read_step_times

REPORT_S = 1.2
"""The server hears from its engine twice a second, so its counters are a little late."""


@dataclass(frozen=True, slots=True)
class EngineShare:
    """`outside` is the part of the step time that was not spent in calls of the library, 0 to 1."""

    streams: int
    outside: float


def measure_engine_share(decode: Decode, side: Side) -> EngineShare | None:
    """Over one run of a decode scenario; None when our server does not publish the counters."""
    time.sleep(REPORT_S)
    before = read_step_times(side.server.port)
    decode.measure(side.client, "engine share")
    time.sleep(REPORT_S)
    after = read_step_times(side.server.port)
    if before is None or after is None:
        return None
    return EngineShare(decode.streams, outside_share(before, after))
