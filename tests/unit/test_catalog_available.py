from __future__ import annotations

from pathlib import Path

import pytest

from mashbox.catalog.available import available_memory

MEMINFO = "MemTotal:       4000 kB\nMemFree:        1000 kB\nMemAvailable:   2000 kB\n"
FREE = 2000 * 1024


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write(tmp_path, "proc/meminfo", MEMINFO)
    return tmp_path


def write(root: Path, name: str, content: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)


def group(root: Path, directory: str, limit: str, usage: int, cache: int, v1: bool = False) -> None:
    names = ("memory.limit_in_bytes", "memory.usage_in_bytes") if v1 else ("memory.max", "memory.current")
    write(root, f"{directory}/{names[0]}", f"{limit}\n")
    write(root, f"{directory}/{names[1]}", f"{usage}\n")
    key = "total_inactive_file" if v1 else "inactive_file"
    write(root, f"{directory}/memory.stat", f"anon 1\n{key} {cache}\n")


def test_this_machine() -> None:
    assert available_memory() > 1 << 20


def test_machine_without_limits(root: Path) -> None:
    assert available_memory(root) == FREE


def test_without_proc_it_is_all_of_the_memory(tmp_path: Path) -> None:
    assert available_memory(tmp_path) > 1 << 28


def test_limit_of_an_outer_group(root: Path) -> None:
    write(root, "proc/self/cgroup", "0::/box/inner\n")
    group(root, "sys/fs/cgroup/box/inner", "max", 10, 0)
    group(root, "sys/fs/cgroup/box", "1000000", 600000, 100000)
    assert available_memory(root) == 500000


def test_container_that_sees_only_its_own_group(root: Path) -> None:
    write(root, "proc/self/cgroup", "0::/docker/not-visible-here\n")
    group(root, "sys/fs/cgroup", "1000000", 600000, 0)
    assert available_memory(root) == 400000


def test_limit_above_the_machine(root: Path) -> None:
    write(root, "proc/self/cgroup", "0::/\n")
    group(root, "sys/fs/cgroup", str(1 << 40), 0, 0)
    assert available_memory(root) == FREE


def test_version_one(root: Path) -> None:
    write(root, "proc/self/cgroup", "3:cpu,cpuacct:/a\n2:memory:/a\n1:name=systemd:/a\n")
    group(root, "sys/fs/cgroup/memory/a", "1000000", 900000, 50000, v1=True)
    group(root, "sys/fs/cgroup/memory", str(2**63 - 4096), 0, 0, v1=True)
    assert available_memory(root) == 150000


def test_a_group_over_its_limit_leaves_nothing(root: Path) -> None:
    write(root, "proc/self/cgroup", "0::/\n")
    group(root, "sys/fs/cgroup", "1000", 5000, 0)
    assert available_memory(root) == 0
