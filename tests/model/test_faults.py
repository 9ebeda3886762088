"""Kills and drops on the real server: every request ends, no slot is lost, no process is left."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import httpx2 as httpx
import pytest

from tests.model.conftest import DEMO, Box, kill, run_box, until_gone

LONG = "Write down every number and the word for it: one, two, three,"


@pytest.fixture
def own_box() -> Iterator[Box]:
    with run_box(DEMO, "--ctx", "2048", "--slots", "2") as box:
        yield box


def ending(box: Box, prompt: str) -> str:
    """How a streamed request ends: done, error or refused."""
    body = {"prompt": prompt, "stream": True, "max_tokens": 150}
    with box.http.stream("POST", "/v1/completions", json=body) as answer:
        if answer.status_code != 200:
            return f"refused {answer.status_code}"
        lines = [line.removeprefix("data: ") for line in answer.iter_lines() if line.startswith("data: ")]
    assert lines[-1] == "[DONE]"
    assert lines.count("[DONE]") == 1
    last = json.loads(lines[-2])
    return "error" if "error" in last else str(last["choices"][0]["finish_reason"])


def test_a_killed_worker_ends_the_streams_it_was_at_and_is_replaced(own_box: Box) -> None:
    with ThreadPoolExecutor(4) as pool:
        running = [pool.submit(ending, own_box, f"{number} {LONG}") for number in range(4)]
        before = own_box.until(lambda report: report["live_rows"] == 2 and report["waiting"] == 2)
        time.sleep(1.0)
        kill(before["worker_pid"])
        ends = [request.result(30) for request in running]
    assert sorted(ends) == ["error", "error", "length", "length"]
    after = own_box.until(lambda report: report["status"] == "ok")
    assert after["worker_restarts"] == 1
    assert after["worker_pid"] != before["worker_pid"]
    until_gone(before["worker_pid"])
    assert own_box.complete("Hello", max_tokens=3)["choices"][0]["finish_reason"] == "length"


def test_health_answers_at_once_while_the_worker_is_stopped_and_a_hung_one_is_replaced(own_box: Box) -> None:
    pid = own_box.health()["worker_pid"]
    os.kill(pid, signal.SIGSTOP)
    begun = time.monotonic()
    assert own_box.health()["status"] == "ok"
    assert time.monotonic() - begun < 0.5
    own_box.until(lambda report: report["worker_restarts"] == 1, 6.0)
    assert time.monotonic() - begun < 6.0
    own_box.until(lambda report: report["status"] == "ok")
    until_gone(pid)


def test_a_killed_server_leaves_no_worker_and_a_free_port(own_box: Box) -> None:
    pid = own_box.health()["worker_pid"]
    stream = httpx.stream("POST", f"{own_box.url}/v1/completions", json={"prompt": LONG, "stream": True})
    with stream as answer:
        next(answer.iter_raw())
        own_box.process.kill()
        own_box.process.wait(5)
        until_gone(pid)
    port = urlsplit(own_box.url).port
    socket.create_server(("127.0.0.1", port or 0)).close()


def test_sigterm_lets_the_running_finish_and_takes_no_more(own_box: Box) -> None:
    pid = own_box.health()["worker_pid"]
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(own_box.complete, LONG, max_tokens=60)
        own_box.until(lambda report: report["live_rows"] == 1)
        own_box.process.terminate()
        assert running.result(20)["usage"]["completion_tokens"] > 1
    assert own_box.process.wait(20) == 0
    until_gone(pid)


def drop(box: Box, prompt: str, patience: float) -> None:
    """Send a request and go away after so many seconds, without a word."""
    parts = urlsplit(box.url)
    body = json.dumps({"prompt": prompt, "stream": True}).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Type: application/json\r\n"
    with socket.create_connection((parts.hostname or "", parts.port or 0)) as connection:
        connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        time.sleep(patience)


def both_slots_answer(box: Box) -> None:
    """Two long answers at once; with a slot lost, the second would wait for the first to end."""
    with (
        box.http.stream("POST", "/v1/completions", json={"prompt": f"1 {LONG}", "stream": True}) as first,
        box.http.stream("POST", "/v1/completions", json={"prompt": f"2 {LONG}", "stream": True}) as second,
    ):
        chunks, others = first.iter_raw(), second.iter_raw()
        for _ in range(5):
            next(chunks)
            next(others)


def test_a_client_dropped_a_hundred_times_costs_no_slot(own_box: Box) -> None:
    """In queue, prefill and decode: 2 slots, 6 clients at once, short and long prompts."""
    pick = random.Random(5)
    jobs = [
        (f"{number} " + ("word " * 900 if number % 2 else LONG), pick.choice([0.0, 0.01, 0.05, 0.2, 0.4]))
        for number in range(100)
    ]
    before = own_box.health()["worker_pid"]
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda job: drop(own_box, *job), jobs))
    gone = time.monotonic()
    own_box.until(lambda report: report["live_rows"] == 0 and report["waiting"] == 0, 5.0)
    assert time.monotonic() - gone < 5.0
    both_slots_answer(own_box)
    assert own_box.health()["worker_pid"] == before


def test_a_model_that_cannot_be_loaded_again_is_tried_until_it_can(demo_file: Path, tmp_path: Path) -> None:
    model = tmp_path / "demo.gguf"
    model.symlink_to(demo_file)
    with run_box(str(model), "--ctx", "512", "--slots", "1") as box:
        model.unlink()
        kill(box.health()["worker_pid"])
        box.until(lambda report: report["worker_restarts"] >= 2)
        model.symlink_to(demo_file)
        box.until(lambda report: report["status"] == "ok")


def test_a_signal_while_the_model_loads_is_no_failure(demo_file: Path) -> None:
    command = [sys.executable, "-m", "mashbox", "run", str(demo_file), "--port", "0", "--threads", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("Loading")
        time.sleep(0.3)
        process.terminate()
        _, complaints = process.communicate(timeout=20)
    assert (process.returncode, complaints) == (0, "")
