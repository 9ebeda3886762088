"""A worker that gets no more memory from the system: what it was asked ends once, and the server lives."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest

from tests.faults.box import Box, told
from tests.faults.process import status_kib
from tests.faults.routes import COUNT, ROUTES, Ending, body, ending
from tests.faults.wire import exchange, request_bytes
from tests.model.conftest import DEMO, run_box

TEXT = "Write down every number and the word for it: one, two, three,"
LARGE = 12 * 2**20
"""Characters whose tokens need more memory than a worker that is at rest has in hand."""


@contextmanager
def real_box() -> Iterator[Box]:
    with run_box(DEMO, "--ctx", "1024", "--slots", "8", "--log-level", "error") as box:
        yield Box(box.process, urlsplit(box.url).port or 0)


async def ask(box: Box, number: int) -> Ending:
    route, stream = ROUTES[number % 4], number % 8 < 4
    sent = request_bytes(route, body(route, f"{number}: {TEXT}", stream, 32))
    return ending(route, stream, await exchange(box.port, sent))


async def count(box: Box, length: int) -> Ending:
    sent = request_bytes(COUNT, body(COUNT, "word " * (length // 5)))
    return ending(COUNT, False, await exchange(box.port, sent))


@pytest.mark.timeout(200)
def test_no_memory_left_for_the_worker() -> None:
    async def beside() -> tuple[Ending, list[Ending]]:
        """A request that needs much memory beside seven that need none."""
        others = [asyncio.create_task(ask(box, number)) for number in range(7)]
        await box.soon(lambda report: report["live_rows"] == 7)
        async with asyncio.timeout(120):
            return await count(box, LARGE), list(await asyncio.gather(*others))

    with real_box() as box:
        pid = box.health()["worker_pid"]
        size = status_kib(pid, "VmSize") * 1024
        resource.prlimit(pid, resource.RLIMIT_AS, (size, resource.RLIM_INFINITY))
        large, others = asyncio.run(beside())
        report = box.idle(60)
        told("no memory", {"large": [large.how, large.status], "restarts": report["worker_restarts"]})
        if report["worker_pid"] == pid:
            assert (large.how, large.status) == ("status", 500)
            assert {end.how for end in others} == {"answered"}
        else:
            # The next worker has no limit. Streams that had sent output could not be made good.
            assert large.how == "answered"
            assert [end.how for end in others[4:]] == ["answered"] * 3
        asyncio.run(ask(box, 1))
