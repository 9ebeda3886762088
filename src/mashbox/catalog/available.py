"""How much memory a new process may use: what the machine has free, within the container's limit."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath


def available_memory(root: Path = Path("/")) -> int:
    """Bytes that can be used without swapping; `root` holds proc and sys."""
    return max(0, min([_machine(root), *_limits(root)]))


def _machine(root: Path) -> int:
    for line in _read(root / "proc/meminfo").splitlines():
        name, _, rest = line.partition(":")
        if name == "MemAvailable":
            return int(rest.split()[0]) * 1024
    # No /proc (macOS): all of the machine's memory is the best guess.
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _limits(root: Path) -> Iterator[int]:
    """What is left under the limit of each control group this process is in."""
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            yield from _left(root / "sys/fs/cgroup", path, "memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            base = root / "sys/fs/cgroup/memory"
            yield from _left(
                base, path, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
            )


def _left(base: Path, path: str, limit_file: str, usage_file: str, cache_key: str) -> Iterator[int]:
    """Limit minus use, for the group and the groups it lies in. Cache of files can be given back."""
    inner = PurePosixPath(path.lstrip("/"))
    for group in (inner, *inner.parents):
        limit, usage = _read(base / group / limit_file).strip(), _read(base / group / usage_file).strip()
        if limit.isdigit() and usage.isdigit():
            stat = dict(line.split() for line in _read(base / group / "memory.stat").splitlines())
            yield int(limit) - int(usage) + int(stat.get(cache_key, 0))


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
