"""What the server says about itself and what the system says about its worker, all through the soak."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, field
from pathlib import Path

import httpx2 as httpx
import msgspec

MIB = 2**20
SAMPLE_S = 0.1
MARGIN = 32 * MIB
"""How far the worker's memory may grow beside saved states, once it is warm. Seen: 3 MiB with prompts that
fill the context. It has to allow for Python's lists of tokens and the allocator's slack, and to be less than
one state of a full context of 2,048 tokens (45 MiB for the demo model), so that an uncounted one shows."""
PROC = Path("/proc")


class Health(msgspec.Struct):
    """The part of the health report that a soak reads; sizes in bytes."""

    status: str
    live_rows: int
    waiting: int
    cache_bytes: int
    host_cache_bytes: int
    snapshot_bytes: int
    host_cache_cap_bytes: int
    host_cache_evictions: int
    worker_restarts: int
    worker_pid: int

    def faults(self, cap: int) -> list[str]:
        """What is wrong with it, given the cap in bytes."""
        held = self.host_cache_bytes + self.snapshot_bytes
        found = []
        if held > self.host_cache_cap_bytes:
            found.append(f"the cache holds {held} bytes, more than its cap of {self.host_cache_cap_bytes}")
        if self.host_cache_cap_bytes != cap:
            found.append(f"the cap is {self.host_cache_cap_bytes} bytes, not {cap}")
        if self.cache_bytes != held:
            found.append(f"cache_bytes is {self.cache_bytes}, its parts are {held}")
        if self.worker_restarts:
            found.append(f"the worker was restarted {self.worker_restarts} times")
        return found


_DECODER = msgspec.json.Decoder(Health)


async def read_health(http: httpx.AsyncClient) -> Health:
    """The server's report now."""
    return _DECODER.decode((await http.get("/health")).content)


def forget_peak(pid: int, proc: Path = PROC) -> None:
    """Let the system count the most memory a process had from now on."""
    (proc / str(pid) / "clear_refs").write_text("5")


def resident(pid: int, peak: bool = False, proc: Path = PROC) -> int:
    """Bytes of memory a process has now, or had at most; shared pages count in full."""
    status = (proc / str(pid) / "status").read_text()
    found = re.search(rf"^{'VmHWM' if peak else 'VmRSS'}:\s+(\d+) kB$", status, re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024


@dataclass(slots=True)
class Watch:
    """Samples one server; `faults` has each kind of complaint once."""

    url: str
    cap: int
    samples: int = 0
    fullest: int = 0
    """Most bytes the cache said it held."""
    longest_line: int = 0
    faults: dict[str, None] = field(default_factory=dict)

    async def run(self) -> None:
        """Until cancelled."""
        async with httpx.AsyncClient(base_url=self.url, timeout=30) as http:
            while True:
                self.take(await read_health(http))
                await asyncio.sleep(SAMPLE_S)

    def take(self, health: Health) -> None:
        """One sample."""
        self.samples += 1
        self.fullest = max(self.fullest, health.cache_bytes)
        self.longest_line = max(self.longest_line, health.waiting)
        self.faults |= dict.fromkeys(health.faults(self.cap))
