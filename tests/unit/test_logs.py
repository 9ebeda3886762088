"""logs/: what a line looks like, what it must not hold, and that no reader of it can hold anything up."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mashbox.errors import BackendError, InvalidRequestError
from mashbox.logs.entry import Entry
from mashbox.logs.escape import escaped, label
from mashbox.logs.failure import told_failure
from mashbox.logs.lines import JsonLines, Lines, TextLines
from mashbox.logs.writer import LineWriter


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("session-1", "session-1"),
        ("  spaced  ", "spaced"),
        ("zwei Wörter", "zwei Wörter"),
        ("日本", "日本"),
        ("a\nb\r\nc\td", "a\\nb\\r\\nc\\td"),
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        ("\x9b31m", "\\x9b31m"),
        ("a\u2028b\u202ec", "a\\u2028b\\u202ec"),
        ("\ud800", "\\ud800"),
        ("\0\x7f", "\\x00\\x7f"),
        ("x" * 64, "x" * 64),
        ("x" * 65, "x" * 63 + "…"),
        ("\n" * 5 + "x" * 10_000_000, "x" * 60),
        ("", ""),
    ],
)
def test_labels(given: str, shown: str) -> None:
    assert label(given) == shown


@given(st.text(max_size=100))
def test_a_label_is_short_and_printable_and_stays_as_it_is(text: str) -> None:
    shown = label(text)
    assert len(shown) <= 64
    assert shown.isprintable()
    assert label(shown) == shown


def test_what_is_kept_is_not_escaped() -> None:
    assert escaped("a\n\tb\x1b\r", keep="\n\t") == "a\n\tb\\x1b\\r"


def written(form: Lines, log: Callable[[logging.Logger], None]) -> str:
    """What a logger writes to its descriptor."""
    reading, writing = os.pipe()
    writer = LineWriter(writing, form)
    logger = logging.Logger("mashbox.test", logging.DEBUG)
    logger.addHandler(writer)
    log(logger)
    writer.flush()
    os.close(writing)
    with os.fdopen(reading) as lines:
        return lines.read()


def test_text_lines_are_aligned_and_never_look_like_two() -> None:
    def log(logger: logging.Logger) -> None:
        logger.info("loaded %d of %d", 1, 2)
        logger.warning("one\n2026-01-01 00:00:00 INFO    forged\x1b[2J\r")

    lines = re.sub(r"(?m)^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "AT", written(TextLines("server", False), log))
    assert lines == (
        "AT INFO    loaded 1 of 2\nAT WARNING one\n  | 2026-01-01 00:00:00 INFO    forged\\x1b[2J\\r\n"
    )
    assert " DEBUG   worker: hm\n" in written(TextLines("worker", False), lambda logger: logger.debug("hm"))


def test_json_lines_have_stable_fields() -> None:
    def log(logger: logging.Logger) -> None:
        logger.info(Entry("request", "200 ...", {"status": 200, "session": "ü\n"}))
        logger.error("broken: %s", "\ud800\n")

    request, broken = map(json.loads, written(JsonLines("worker", False), log).splitlines())
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", request.pop("time"))
    assert request == {
        "level": "info",
        "process": "worker",
        "logger": "mashbox.test",
        "message": "request",
        "status": 200,
        "session": "ü\n",
    }
    assert (broken["level"], broken["message"]) == ("error", "broken: \ud800\n")


def chained() -> ExceptionGroup[Exception]:
    """Exceptions of which each quotes a secret, but for the library's."""
    try:
        try:
            try:
                raise KeyError("secret")
            except KeyError:
                raise ValueError("secret") from BackendError("the library failed")
        except ValueError:
            raise InvalidRequestError("secret") from None
    except InvalidRequestError as error:
        inner = error
    try:
        raise ExceptionGroup("secret", [inner, UnicodeDecodeError("utf-8", b"secret", 0, 1, "secret")])
    except ExceptionGroup as group:
        return group


def test_a_failure_tells_where_and_not_what() -> None:
    told = told_failure(chained(), content=False)
    # The source lines of this file hold the word, as no request's do.
    assert 'Error("secret")' in told
    assert "Error: secret" not in told
    assert "InvalidRequestError: (message left out)" in told
    assert "line " in told
    assert "InvalidRequestError: secret" in told_failure(chained(), content=True)


def test_causes_come_first_and_their_messages_are_told_by_kind() -> None:
    try:
        try:
            raise BackendError("the library failed")
        except BackendError as error:
            raise ValueError("private") from error
    except ValueError as error:
        told = told_failure(error, content=False)
    assert told.index("BackendError: the library failed") < told.index("ValueError: (message left out)")


@pytest.mark.parametrize("form", [TextLines("server", False), JsonLines("server", False)])
def test_a_logged_failure_holds_no_message(form: Lines) -> None:
    def log(logger: logging.Logger) -> None:
        quoted = "".join(("sec", "ret"))
        try:
            raise ValueError(quoted)
        except ValueError:
            logger.exception("a bug")

    lines = written(form, log)
    assert "ValueError: (message left out)" in lines
    assert "secret" not in lines


def test_a_call_to_the_log_that_does_not_fit_ends_nothing() -> None:
    assert "left (its arguments do not fit" in written(
        TextLines("server", False), lambda logger: logger.info("left", "secret")
    )


def test_a_reader_that_is_stuck_holds_nothing_up_and_costs_lines_only() -> None:
    reading, writing = os.pipe()
    writer = LineWriter(writing, TextLines("server", False), most_waiting=100_000, errors_wait_s=0.05)
    logger = logging.Logger("mashbox.test")
    logger.addHandler(writer)
    begun = time.monotonic()
    for number in range(3_000):
        logger.error("line %d %s", number, "x" * 100)
    assert time.monotonic() - begun < 5
    assert writer.lost > 1_000
    lost = writer.lost
    read = bytearray()

    def take() -> None:
        while chunk := os.read(reading, 65536):
            read.extend(chunk)

    taking = threading.Thread(target=take)
    taking.start()
    writer.flush()
    logger.info("the last one")
    writer.flush()
    os.close(writing)
    taking.join(5)
    os.close(reading)
    lines = read.decode().splitlines()
    assert "the last one" in lines[-1]
    assert any(f"as nobody took them: {lost}" in line for line in lines)
    assert sum(" line " in line for line in lines) == 3_000 - lost


def test_a_reader_that_left_costs_lines_only() -> None:
    reading, writing = os.pipe()
    writer = LineWriter(writing, TextLines("server", False))
    logger = logging.Logger("mashbox.test")
    logger.addHandler(writer)
    os.close(reading)
    logger.error("one")
    logger.error("two")
    writer.flush()
    assert writer.lost == 2
    os.close(writing)


def test_a_descriptor_that_does_not_block_is_waited_for() -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    writer = LineWriter(writing, TextLines("server", False))
    logger = logging.Logger("mashbox.test")
    logger.addHandler(writer)
    logger.info("x" * 300_000)
    read = b""
    while not read.endswith(b"\n"):
        read += os.read(reading, 65536)
    writer.flush()
    os.close(writing)
    os.close(reading)
    assert read.count(b"x") == 300_000
    assert writer.lost == 0


BUGS = """
import asyncio, sys, threading, warnings
from mashbox.config import LogConfig
from mashbox.logs import setup

def fail(*_):
    raise ValueError("".join(("sec", "ret")))

async def main():
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(setup.log_loop_failure)
    loop.call_soon(fail)
    forgotten = asyncio.create_task(asyncio.to_thread(fail))
    await asyncio.sleep(0.1)

setup.start(LogConfig(json=True), "worker")
asyncio.run(main())
thread = threading.Thread(target=fail)
thread.start()
thread.join()
warnings.warn("careful")
fail()
"""


def test_bugs_anywhere_are_logged_in_the_same_form() -> None:
    done = subprocess.run([sys.executable, "-c", BUGS], capture_output=True, text=True, timeout=30)
    assert done.returncode == 1
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert len(lines) == 5, lines
    assert {line["message"] for line in lines} >= {"a bug ended a thread", "a bug ended the process"}
    assert sum(line.get("exception", "").endswith("ValueError: (message left out)") for line in lines) == 4
    assert "secret" not in done.stderr
