"""CPU times and machine facts from Linux's /proc."""

from __future__ import annotations

import os
from pathlib import Path

from bench.errors import BenchError

PROC = Path("/proc")
_TICKS = os.sysconf("SC_CLK_TCK")
_IDLE, _IOWAIT = 3, 4
_PARENT, _USER, _SYSTEM = 1, 11, 12
"""Places of the fields in /proc/PID/stat after the command's closing bracket."""


def tree_cpu_seconds(pid: int, proc: Path = PROC) -> float:
    """CPU time so far of a process and all its living descendants."""
    processes = _processes(proc)
    family = {pid}
    while more := {child for child, (parent, _) in processes.items() if parent in family} - family:
        family |= more
    return sum(processes[member][1] for member in family if member in processes) / _TICKS


def _processes(proc: Path) -> dict[int, tuple[int, int]]:
    """Each process's parent and its CPU time in ticks."""
    found = {}
    for entry in proc.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has just ended
        found[int(entry.name)] = (int(fields[_PARENT]), int(fields[_USER]) + int(fields[_SYSTEM]))
    return found


def idle_seconds(proc: Path = PROC) -> float:
    """Time that all cores together have been idle since the machine started."""
    ticks = (proc / "stat").read_text().split("\n", 1)[0].split()[1:]
    return (int(ticks[_IDLE]) + int(ticks[_IOWAIT])) / _TICKS


def cpu_facts(proc: Path = PROC) -> dict[str, str]:
    """The first processor's lines of /proc/cpuinfo."""
    first = (proc / "cpuinfo").read_text().split("\n\n")[0]
    pairs = (line.partition(":") for line in first.splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}


def check_linux() -> None:
    """Raise BenchError where there is no /proc."""
    if not (PROC / "stat").exists():
        raise BenchError("The benchmark reads /proc, so it runs on Linux only.")
