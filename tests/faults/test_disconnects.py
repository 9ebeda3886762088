"""Mixed requests of which three in ten are left at any moment: nothing of them stays behind."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.faults.box import Box, run, told
from tests.faults.routes import COUNT, ROUTES, body, ending
from tests.faults.serve import Setup
from tests.faults.wire import Leave, exchange, request_bytes

AT_ONCE = 36
"""As many as can be in slots and in the line of one tenant, and a few less."""
LEFT = 0.3


@dataclass(frozen=True)
class Job:
    """One request, and when its client goes away."""

    route: str
    stream: bool
    sent: bytes
    leave: Leave | None
    text: str


@pytest.fixture
def box() -> Iterator[Box]:
    with run(Setup()) as box:
        yield box


def make_jobs(count: int, seed: int) -> list[Job]:
    pick = random.Random(seed)
    jobs = []
    for number in range(count):
        route = pick.choice([*ROUTES, COUNT])
        stream = route != COUNT and pick.random() < 0.5
        line = f"{number}{'[pause]' * pick.randrange(4)}" + "abc " * pick.randrange(8) + "."
        # A long head makes prefill a place to be left in.
        text = "word " * pick.choice([0, 0, 200]) + "\n" + line
        leave = leaving(pick) if pick.random() < LEFT else None
        jobs.append(Job(route, stream, request_bytes(route, body(route, text, stream)), leave, line))
    return jobs


def leaving(pick: random.Random) -> Leave:
    """At any moment: before the body is complete, while queued or computed, in the middle of the answer."""
    match pick.randrange(3):
        case 0:
            return Leave(part=pick.random(), seconds=pick.choice([0.0, 0.05]))
        case 1:
            return Leave(seconds=pick.choice([0.0, 0.01, 0.1, 0.3]))
        case _:
            return Leave(received=pick.randrange(1, 1500))


async def go(box: Box, jobs: list[Job]) -> Counter[str]:
    """Run all of them; every client that stays gets its whole answer."""
    room, seen = asyncio.Semaphore(AT_ONCE), Counter[str]()

    async def one(job: Job) -> None:
        async with room:
            reply = await exchange(box.port, job.sent, job.leave)
        if job.leave is not None:
            seen["left"] += 1
            return
        end = ending(job.route, job.stream, reply)
        assert end.how == "answered", (job, end)
        if job.route != COUNT:
            assert end.text.rstrip() == job.text.replace("[pause]", ""), job
        seen["counted" if job.route == COUNT else "answered"] += 1

    async with asyncio.timeout(300):
        await asyncio.gather(*(one(job) for job in jobs))
    return seen


@pytest.mark.timeout(400)
def test_clients_that_leave_cost_nothing(box: Box, long: bool) -> None:
    count = 1000 if long else 200
    asyncio.run(go(box, make_jobs(60, seed=1)))
    box.idle()
    before, ended_before, tasks_before = box.footprint(), box.ended(), box.tasks()
    jobs = make_jobs(count, seed=2)
    seen = asyncio.run(go(box, jobs))
    report = box.idle(5.0)
    after = box.footprint(before)
    ended = {how: number - ended_before[how] for how, number in box.ended().items()}
    gone = Counter("part" if job.leave.part is not None else "whole" for job in jobs if job.leave)
    told(
        f"{count} mixed requests",
        dict(seen)
        | {"ended": ended, "grown_bytes": after.resident - before.resident}
        | {"descriptors": after.descriptors, "tasks": box.tasks(), "tasks_before": tasks_before},
    )
    assert report["worker_restarts"] == 0
    assert box.tasks() <= tasks_before
    assert seen["answered"] + seen["counted"] + seen["left"] == count
    assert ended["error"] == 0
    # Some of those who left did so after their answer's end, or before it was begun.
    assert seen["answered"] <= ended["stop"] + ended["length"] <= seen["answered"] + gone["whole"]
    assert gone["whole"] / 4 < ended["abort"] <= gone["whole"]
    assert sum(ended.values()) <= seen["answered"] + gone["whole"]
