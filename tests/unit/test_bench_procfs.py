"""What the benchmark reads from /proc."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from bench.procfs import cpu_facts, idle_seconds, tree_cpu_seconds

TICKS = os.sysconf("SC_CLK_TCK")


def stat(pid: int, parent: int, user: int, system: int, command: str = "x") -> str:
    return f"{pid} ({command}) S {parent} 1 1 0 -1 0 0 0 0 0 {user} {system} 7 7 20 0 1 0 5\n"


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    processes = {
        10: stat(10, 1, 100, 20),
        11: stat(11, 10, 5, 5, command="odd ) name"),
        12: stat(12, 11, 1, 0),
        13: stat(13, 1, 1000, 1000),
    }
    for pid, text in processes.items():
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "stat").write_text(text)
    (tmp_path / "99").mkdir()  # ended while we look
    (tmp_path / "stat").write_text(f"cpu  1 2 3 {4 * TICKS} {TICKS} 6 7 8 9 10\ncpu0 1 2 3 4 5\n")
    (tmp_path / "cpuinfo").write_text("model name\t: First\nflags\t\t: avx2 fma\n\nmodel name\t: Second\n")
    return tmp_path


def test_a_tree_is_a_process_with_all_its_descendants(proc: Path) -> None:
    assert tree_cpu_seconds(10, proc) * TICKS == pytest.approx(131)


def test_a_process_that_has_ended_counts_nothing(proc: Path) -> None:
    assert tree_cpu_seconds(77, proc) == 0


def test_idle_seconds(proc: Path) -> None:
    assert idle_seconds(proc) == 5


def test_cpu_facts_are_the_first_processors(proc: Path) -> None:
    assert cpu_facts(proc) == {"model name": "First", "flags": "avx2 fma"}


def test_the_real_proc_sees_a_busy_child() -> None:
    # It burns more than it is asked for: the kernel counts in ticks and rounds down.
    busy = "import time\nend = time.process_time() + 0.5\nwhile time.process_time() < end: pass\ninput()"
    child = subprocess.Popen(
        [sys.executable, "-c", busy + "\n"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with child:
        before = 0.0
        while (spent := tree_cpu_seconds(child.pid)) < 0.1:
            assert child.poll() is None
            assert spent >= before
            before = spent
        assert child.stdin is not None
        child.stdin.write(b"\n")
