"""Which scenarios a run has, which servers it starts, and the lookup by itself."""

from __future__ import annotations

import json
import sys
import threading
from array import array
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import NoReturn

import pytest
from bench import __main__ as command
from bench import peer
from bench.config import Setup
from bench.errors import BenchError
from bench.limits import Limits
from bench.lookup import measure_lookups
from bench.machine import Machine
from bench.model import Work, has_chat_template
from bench.ours import Exact, check_exact, launch
from bench.prompts import TEMPLATE
from bench.suite import FULL, NO_PEER, QUICK, SPEED, Part, Sizes, build

from mashbox.engine.host_cache import HostCache
from mashbox.engine.states import NOTHING, Reuse, SavedState

SETUP = Setup(Path("/models/one.gguf"), context=4096, slots=8, threads=2)


@pytest.mark.parametrize("sizes", [FULL, QUICK], ids=["full", "quick"])
def test_every_part_with_servers_has_a_scenario(sizes: Sizes) -> None:
    for part in set(Part) - NO_PEER:
        assert build({part}, sizes, 8, 500)
    titles = [scenario.title for scenario in build(set(Part), sizes, 8, 500)]
    assert len(set(titles)) == len(titles) == len(sizes.streams) + 5


def test_parts_without_servers_have_none() -> None:
    assert build(NO_PEER, FULL, 8, 500) == []


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ([], frozenset(Part)),
        (["--quick"], frozenset(Part)),
        (["--only", "sessions,second-turn"], {Part.SESSIONS, Part.SECOND_TURN}),
        (["--self-test"], frozenset(Part) - NO_PEER),
        (["--exact"], SPEED),
        (["--exact", "uncertified", "--only", "return"], {Part.RETURN}),
    ],
)
def test_wanted_parts(line: list[str], parts: frozenset[Part]) -> None:
    assert command._wanted(command._parse(line)) == parts


@pytest.mark.parametrize("line", [["--only", "speed"], ["--exact", "very"], ["--exact", "--self-test"]])
def test_wrong_options_are_told(line: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command._parse(line)
    assert ended.value.code == 2
    assert line[0] in capsys.readouterr().err


def test_exact_mode_is_measured_against_our_default() -> None:
    left, right = command._launches(SETUP, command._parse(["--exact"]))
    assert (left.name, right.name) == ("ours-certified", "ours")
    assert left.command[0] == right.command[0] == sys.executable
    assert "--exact" in left.command
    assert "--exact" not in right.command


def test_without_a_certificate_the_cache_directory_is_another(tmp_path: Path) -> None:
    assert launch(SETUP, tmp_path, Exact.UNCERTIFIED).env["MASHBOX_CACHE"].startswith(str(tmp_path))
    assert not launch(SETUP, tmp_path, Exact.CERTIFIED).env


@contextmanager
def reporting(*healths: dict[str, str | None]) -> Iterator[int]:
    """The port of a server with these health reports, one after another."""
    left = list(healths)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(left.pop(0)).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


UNKNOWN = {"component_set_sha": None, "certification": "none"}
KNOWN = {"component_set_sha": "a", "certification": "none"}
PASSED = {"component_set_sha": "a", "certification": "passed"}


@pytest.mark.parametrize(
    ("exact", "healths", "refused"),
    [
        (Exact.CERTIFIED, [UNKNOWN, PASSED], False),
        (Exact.CERTIFIED, [KNOWN], True),
        (Exact.UNCERTIFIED, [KNOWN], False),
        (Exact.UNCERTIFIED, [UNKNOWN, PASSED], True),
    ],
)
def test_the_certification_is_checked(
    exact: Exact, healths: list[dict[str, str | None]], refused: bool
) -> None:
    expected = pytest.raises(BenchError, match="certification is") if refused else nullcontext()
    with reporting(*healths) as port, expected:
        check_exact(port, exact)


def test_our_host_cache_can_be_given() -> None:
    given = launch(Setup(SETUP.model, 4096, 8, 2, cache_ram=512), Path("logs")).command
    assert given[-2:] == ["--cache-ram", "512"]
    assert "--cache-ram" not in launch(SETUP, Path("logs")).command


def test_both_sides_get_the_template(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer, "ensure_built", lambda: Path("llama-server"))
    setup = Setup(SETUP.model, 4096, 8, 2, chat_template=TEMPLATE)
    left, right = command._launches(setup, command._parse([]))
    assert left.command[-2:] == ["--chat-template", str(TEMPLATE)]
    assert right.command[-2:] == ["--chat-template-file", str(TEMPLATE)]


@pytest.mark.parametrize(("header", "found"), [(b"chat_template", True), (b"chat_templatf", False)])
def test_whether_a_file_has_a_template(tmp_path: Path, header: bytes, found: bool) -> None:
    name = b"tokenizer." + header
    (tmp_path / "a.gguf").write_bytes(b"GGUF" + len(name).to_bytes(8, "little") + name + bytes(8))
    assert has_chat_template(tmp_path / "a.gguf") is found


def test_the_lookup_needs_no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object) -> NoReturn:
        raise AssertionError("no launch is needed")

    monkeypatch.setattr(command, "_launches", stop)
    monkeypatch.setattr(command, "_model", lambda path, folder: SETUP.model)
    monkeypatch.setattr(command, "describe", lambda: Machine("x", 2, (), 24.0, "6", "3.11", 0.0))
    monkeypatch.setattr(command, "read_work", lambda path: Work(1000, 100, 10, 4, 2, 4, True))
    monkeypatch.setattr(command, "measure_limits", lambda threads, folder: Limits(1e5, 1e5, 2e5))
    report = command.run(command._parse(["--quick", "--only", "lookup"])).text()
    assert "nothing was asked of a server" in report
    assert "among 100 states with snapshots of 1,000 tokens" in report


def test_lookups_find_what_there_is() -> None:
    times = measure_lookups(40, 600)
    assert len({time.kind for time in times}) == 2
    assert all(0 < time.median <= time.longest for time in times)


def test_a_lookup_that_finds_nothing_is_no_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(cache: HostCache, prompt: array[int], tenant: str) -> tuple[SavedState | None, Reuse]:
        return None, NOTHING

    monkeypatch.setattr(HostCache, "find", find)
    with pytest.raises(BenchError, match="where a state shares"):
        measure_lookups(40, 600)
