"""The build script's own logic; the build itself is proved by every test that loads a model."""

from __future__ import annotations

import importlib.util
import io
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "build_llama.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_llama", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_key_changes_with_the_users_flags(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CMAKE_ARGS", raising=False)
    plain = script.build_key()
    monkeypatch.setenv("CMAKE_ARGS", "-DGGML_CUDA=on")
    assert script.build_key() != plain
    monkeypatch.delenv("CMAKE_ARGS")
    assert script.build_key() == plain


def test_cached_wheel_is_taken_without_building(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MASHBOX_CACHE", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    with pytest.raises(script.SetupError, match="apt-get install gcc g"):
        script.wheel()
    kept = tmp_path / "wheels" / script.build_key() / "llama_cpp_python-1-py3-none-linux_x86_64.whl"
    kept.parent.mkdir()
    kept.touch()
    assert script.wheel() == kept


def test_a_log_gets_a_line_every_ten_percent(script: ModuleType) -> None:
    screen, clock = io.StringIO(), Clock()
    progress = script.Progress(screen, clock)
    progress.read("  *** Building project with Ninja...")
    for step in range(1, 84):
        clock.now += 1.5
        progress.read(f"  [{step}/83] /usr/bin/c++ -c some.cpp")
        progress.show()
    lines = screen.getvalue().splitlines()
    assert len(lines) == 10
    assert lines[0] == "  10 %  0:13  compiling"
    assert lines[-1] == "  100 %  2:04  compiling"


def test_a_log_gets_a_line_every_twenty_seconds_when_nothing_moves(script: ModuleType) -> None:
    screen, clock = io.StringIO(), Clock()
    progress = script.Progress(screen, clock)
    for _ in range(60):
        clock.now += 1
        progress.show()
    assert screen.getvalue().splitlines() == [
        "  0 %  0:20  preparing",
        "  0 %  0:40  preparing",
        "  0 %  1:00  preparing",
    ]


def test_a_terminal_gets_one_line_that_is_drawn_over(script: ModuleType) -> None:
    screen, clock = Terminal(), Clock()
    progress = script.Progress(screen, clock)
    progress.read("*** Building project")
    progress.read("[ 50%] Building CXX object")
    progress.show()
    progress.show()
    assert "\n" not in screen.getvalue()
    assert f"[{'#' * 15}{'.' * 15}]  50 %" in screen.getvalue()


def test_follow_keeps_everything_and_reads_lines_cut_in_two(script: ModuleType) -> None:
    screen, kept = Terminal(), io.BytesIO()
    progress = script.Progress(screen, Clock())
    progress.read("*** Building project")
    said = b"[1/4] one\n" + b"x" * 100_000 + b"\n[3/4] three\nno newline at the end"
    speak = f"import sys; sys.stdout.buffer.write({said!r})"
    with subprocess.Popen([sys.executable, "-c", speak], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        script.follow(process.stdout.fileno(), kept, progress)
    assert kept.getvalue() == said
    assert " 75 %" in screen.getvalue()


def test_steps_of_cmakes_own_tests_do_not_count(script: ModuleType) -> None:
    screen = Terminal()
    progress = script.Progress(screen, Clock())
    progress.read("*** Configuring CMake...")
    progress.read("    [1/2] Building C object testCCompiler.c.o")
    progress.show()
    assert "   0 %" in screen.getvalue()


def test_failure_shows_the_first_error_and_names_the_log(script: ModuleType, tmp_path: Path) -> None:
    log = tmp_path / "some.log"
    before = "\n".join(f"[{step}/83] c++ -Werror=vla -c errors.cpp" for step in range(40))
    after = "\n".join(f"[{step}/83] c++ -c more.cpp" for step in range(41, 83))
    log.write_text(f"{before}\n  a.cpp:3:1: error: no such thing\n\n  3 | thing\n{after}\n")
    lines = script.failure(log).strip().splitlines()
    assert lines[0].strip() == "a.cpp:3:1: error: no such thing"
    assert len(lines) == 21
    assert lines[-1].endswith(str(log))
    log.write_text(f"{before}\nKilled")
    assert "Killed" in script.failure(log)
