"""What the numbers were measured on."""

from __future__ import annotations

import os
import platform
import time
from dataclasses import dataclass
from importlib.metadata import version

from bench.procfs import cpu_facts, idle_seconds

_FEATURES = (
    "avx2",
    "f16c",
    "fma",
    "avx512f",
    "avx512_bf16",
    "avx512_vnni",
    "avx_vnni",
    "amx_int8",
    "asimddp",
    "i8mm",
    "sve",
)
_WATCH_S = 2.0


@dataclass(frozen=True, slots=True)
class Machine:
    """`busy` is the part of all cores that others were using before the benchmark began, 0 to 1."""

    cpu: str
    cores: int
    features: tuple[str, ...]
    memory_gib: float
    system: str
    software: str
    busy: float

    def lines(self) -> list[str]:
        """For people."""
        return [
            f"{self.cpu}, {self.cores} cores, {self.memory_gib:.0f} GiB memory",
            f"features: {' '.join(self.features) or 'unknown'}",
            f"{self.system}; {self.software}",
            f"used by others before the start: {self.busy:.0%} of all cores",
        ]


def describe() -> Machine:
    """Look at the machine; takes two seconds, to see what else runs on it."""
    facts = cpu_facts()
    flags = (facts.get("flags") or facts.get("Features") or "").split()
    return Machine(
        cpu=facts.get("model name") or platform.processor() or platform.machine(),
        cores=os.cpu_count() or 1,
        features=tuple(name for name in _FEATURES if name in flags),
        memory_gib=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30,
        system=f"{platform.system()} {platform.release()}",
        software=f"Python {platform.python_version()}, llama-cpp-python {version('llama-cpp-python')}",
        busy=_busy_share(),
    )


def _busy_share() -> float:
    before = idle_seconds()
    time.sleep(_WATCH_S)
    idle = (idle_seconds() - before) / (_WATCH_S * (os.cpu_count() or 1))
    return min(1.0, max(0.0, 1 - idle))
