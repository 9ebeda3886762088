"""What a process has: memory, descriptors, threads, children. Linux only."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

MIB = 2**20
POOL = (os.cpu_count() or 1) + 4
"""Threads that asyncio starts when they are first needed, and keeps."""


@dataclass(frozen=True)
class Footprint:
    """Of one process; memory in bytes."""

    resident: int
    descriptors: int
    threads: int
    children: int

    @classmethod
    def of(cls, pid: int) -> Footprint:
        """Now."""
        folder = Path(f"/proc/{pid}")
        children = [(task / "children").read_text().split() for task in (folder / "task").iterdir()]
        return cls(
            resident=status_kib(pid, "VmRSS") * 1024,
            descriptors=len(list((folder / "fd").iterdir())),
            threads=len(list((folder / "task").iterdir())),
            children=sum(map(len, children)),
        )

    def grown(self, since: Footprint) -> str:
        """What there is more of than before, in words; allowed are 16 MiB and the loop's pool of threads."""
        found = []
        if self.resident > since.resident + 16 * MIB:
            found.append(f"{(self.resident - since.resident) / MIB:.1f} MiB")
        for name, allowed in (("descriptors", 0), ("threads", POOL), ("children", 0)):
            if (more := getattr(self, name) - getattr(since, name)) > allowed:
                found.append(f"{more} {name}")
        return ", ".join(found)


def status_kib(pid: int, name: str) -> int:
    """A field of /proc/PID/status that is given in KiB."""
    found = re.search(rf"^{name}:\s+(\d+) kB$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1])
