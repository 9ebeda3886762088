"""kill -9 and SIGSTOP of a real model's worker under 8 running and 8 waiting requests, again and again."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

import pytest

from tests.faults.box import Box, told
from tests.faults.routes import ROUTES, Ending, body, ending, has_output
from tests.faults.wire import Reply, exchange, request_bytes
from tests.model.conftest import DEMO, is_running, run_box

SLOTS = 8
TOKENS = 32
TEXT = "Write down every number and the word for it: one, two, three,"
FOUND_WITHIN_S = 3.0


@contextmanager
def real_box() -> Iterator[Box]:
    with run_box(DEMO, "--ctx", "1024", "--slots", str(SLOTS), "--log-level", "error") as box:
        yield Box(box.process, urlsplit(box.url).port or 0)


@dataclass
class Asked:
    """One request under way."""

    route: str
    stream: bool
    reply: Reply
    task: asyncio.Task[Reply]

    @property
    def has_output(self) -> bool:
        """Its client has seen some."""
        return self.stream and has_output(self.route, self.reply)


def ask(box: Box, number: int, tokens: int = TOKENS) -> Asked:
    """One request; its number decides its route, and whether it is streamed."""
    route, stream = ROUTES[number % 4], number % 8 < 4
    latest = Reply()

    def keep(reply: Reply) -> None:
        latest.raw = reply.raw

    sent = request_bytes(route, body(route, f"{number}: {TEXT}", stream, tokens))
    task = asyncio.create_task(exchange(box.port, sent, on_bytes=keep))
    return Asked(route, stream, latest, task)


async def ask_sixteen(box: Box, first: int) -> list[Asked]:
    """8 that have slots, of which all streams have sent output, and 8 that wait."""
    running = [ask(box, first + number) for number in range(SLOTS)]
    await box.soon(lambda report: report["live_rows"] == SLOTS)
    waiting = [ask(box, first + SLOTS + number) for number in range(SLOTS)]
    await box.soon(lambda report: report["live_rows"] + report["waiting"] == 2 * SLOTS)
    async with asyncio.timeout(20):
        while not all(asked.has_output for asked in running if asked.stream):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    return running + waiting


async def fault(box: Box, pid: int, number: int) -> float:
    """Do it; seconds until the process is gone."""
    os.kill(pid, number)
    begun = time.monotonic()
    while is_running(pid):
        assert time.monotonic() - begun < 10, "the worker was not ended"
        await asyncio.sleep(0.01)
    return time.monotonic() - begun


async def one_round(box: Box, number: int, first: int) -> tuple[list[Ending], float]:
    """How all 16 ended, and how long the fault went unseen."""
    asked = await ask_sixteen(box, first)
    seconds = await fault(box, box.health()["worker_pid"], number)
    assert box.health()["status"] in ("loading", "ok")
    async with asyncio.timeout(60):
        replies = await asyncio.gather(*(one.task for one in asked))
    ends = [ending(one.route, one.stream, reply) for one, reply in zip(asked, replies, strict=True)]
    for one, end in zip(asked, ends, strict=True):
        # Only who has seen output may get an error; all others are made good.
        assert end.how == "answered" or (end.how == "event" and one.has_output), (one.route, one.stream, end)
    return ends, seconds


@pytest.mark.timeout(900)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_worker_that_dies_or_stops_again_and_again(number: signal.Signals, long: bool) -> None:
    rounds = 20 if long else 3
    seen: Counter[str] = Counter()
    found: list[float] = []
    with real_box() as box:
        ended_before = sum(box.ended().values())
        for place in range(rounds):
            ends, seconds = asyncio.run(one_round(box, number, 100 * place))
            report = box.idle()
            assert report["worker_restarts"] == place + 1
            seen.update(end.how for end in ends)
            found.append(seconds)
            if place == 0:
                start = box.footprint()
        after = box.footprint(start)
        ended = box.ended()
    assert seen["event"] >= rounds
    assert sum(seen.values()) == sum(ended.values()) - ended_before == 16 * rounds
    assert ended["error"] == seen["event"]
    assert max(found) < FOUND_WITHIN_S
    told(
        f"{number.name} of the worker, {rounds} rounds",
        dict(seen)
        | {"longest_s": round(max(found), 2), "grown_bytes": after.resident - start.resident}
        | {"descriptors": after.descriptors, "threads": after.threads, "children": after.children},
    )
