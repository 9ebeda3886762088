"""300 clients at once on 8 slots: fair shares, refusals that are counted and true, and nothing lost."""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.faults.box import Box, run, told
from tests.faults.routes import COUNT, MESSAGES, ROUTES, Ending, body, ending
from tests.faults.serve import Setup
from tests.faults.wire import Reply, exchange, request_bytes

SLOTS = 8
MOST_OF_TENANT, MOST_WAITING = 32, 256
GREEDY, MODEST = 290, 10
WORK = "[pause]" * 6
LONG_WORK = "[pause]" * 24
"""More than a second: all who are to wait are there before the first one is done."""
"""A third of a second."""
TENANTS = 12


@contextmanager
def shared_box(folder: Path) -> Iterator[Box]:
    """Keys of `greedy`, `modest` and twelve others, each tenant's key being its name and "-key"."""
    keys = folder / "keys"
    names = ["greedy", "modest", *(f"tenant{number}" for number in range(TENANTS))]
    keys.write_text("".join(f"{name}-key {name}\n" for name in names))
    keys.chmod(0o600)
    with run(Setup(slots=SLOTS, keys=str(keys)), key="modest-key") as box:
        yield box


@dataclass
class Seen:
    """What the clients of one tenant saw."""

    waits: list[float] = field(default_factory=list)
    """Seconds until an answer, of those that were let in."""
    times: list[float] = field(default_factory=list)
    """When they were answered."""
    refused: int = 0
    obeyed: int = 0
    """Requests sent after as long a wait as a refusal had asked for."""
    let_in: int = 0
    """How many of those were not refused."""


async def ask(box: Box, tenant: str, number: int, text: str, tokens: int = 64) -> tuple[Ending, Reply]:
    route, stream = ROUTES[number % 4], number % 8 < 4
    sent = request_bytes(route, body(route, text, stream, tokens), f"{tenant}-key")
    reply = await exchange(box.port, sent)
    return ending(route, stream, reply), reply


async def keep_asking(
    box: Box, tenant: str, number: int, seen: Seen, times: int | None, patient: bool
) -> None:
    """A client that asks again and again; a patient one comes back when it is told to."""
    waited = False
    pick = random.Random(f"{tenant}{number}")
    while times is None or times > 0:
        begun = time.monotonic()
        end, reply = await ask(box, tenant, number, f"{tenant} {WORK}")
        seen.obeyed += waited
        seen.let_in += waited and end.status != 429
        waited = False
        if end.status == 429:
            seen.refused += 1
            waited = patient
            await asyncio.sleep(int(reply.headers["retry-after"]) if patient else pick.uniform(0.5, 1.5))
            continue
        assert end.how == "answered", end
        assert end.text.rstrip() == tenant
        seen.times.append(time.monotonic())
        seen.waits.append(seen.times[-1] - begun)
        times = None if times is None else times - 1


async def contend(box: Box, each: int, rude: bool) -> tuple[Seen, Seen]:
    """The greedy ones ask until the modest ones have had `each` answers."""
    greedy, modest = Seen(), Seen()
    async with asyncio.timeout(300):
        endless = [
            asyncio.create_task(
                keep_asking(box, "greedy", number, greedy, None, patient=not rude or number % 2 == 0)
            )
            for number in range(GREEDY)
        ]
        await box.soon(lambda report: report["waiting"] >= MOST_OF_TENANT)
        few = [keep_asking(box, "modest", number, modest, each, patient=True) for number in range(MODEST)]
        await asyncio.gather(*few)
        for task in endless:
            assert not task.done(), task
            task.cancel()
        await asyncio.gather(*endless, return_exceptions=True)
    return greedy, modest


def share(greedy: Seen, modest: Seen) -> float:
    """The modest ones' part of all answers while their line was never empty: all but their last ones."""
    times = sorted(modest.times)
    begin, end = times[0], times[-MODEST]
    mine = sum(begin < moment <= end for moment in modest.times)
    return mine / (mine + sum(begin < moment <= end for moment in greedy.times))


@pytest.mark.timeout(400)
@pytest.mark.parametrize("rude", [True, False])
def test_a_greedy_tenant_takes_no_more_than_its_turn(tmp_path: Path, long: bool, rude: bool) -> None:
    """Also when half of its clients do not wait for as long as they are told to."""
    with shared_box(tmp_path) as box:
        greedy, modest = asyncio.run(contend(box, 20 if long else 5, rude))
        box.idle()
        part = share(greedy, modest)
        counted, ended = box.metric("error_answers_total", status="429"), box.ended()
    told(
        f"300 clients, 8 slots, {'half of the greedy ones rude' if rude else 'all patient'}",
        {
            "share_of_10_beside_290": round(part, 3),
            "median_wait_s": [round(statistics.median(seen.waits), 2) for seen in (modest, greedy)],
            "longest_wait_s": [round(max(seen.waits), 2) for seen in (modest, greedy)],
            "answers": [len(modest.waits), len(greedy.waits)],
            "refused": greedy.refused,
            "refused_counted": counted,
            "came_back_when_told": greedy.obeyed,
            "let_in_then": greedy.let_in,
        },
    )
    assert 0.4 < part < 0.6
    assert modest.refused == 0
    assert statistics.median(modest.waits) < statistics.median(greedy.waits) / 2
    # Clients that were cancelled at the end may have been refused without seeing it.
    assert greedy.refused <= counted <= greedy.refused + GREEDY
    answered = len(modest.waits) + len(greedy.waits)
    assert answered <= ended["stop"] + ended["length"] <= answered + GREEDY
    assert ended["error"] == 0


async def fill(
    box: Box, tenant: str, count: int, text: str, tokens: int = 64
) -> list[asyncio.Task[tuple[Ending, Reply]]]:
    """So many requests of one tenant, none with the beginning of another; returns when all are in."""
    before = box.health()
    wanted = before["live_rows"] + before["waiting"] + count
    tasks = [
        asyncio.create_task(ask(box, tenant, number, f"{number} {text}", tokens)) for number in range(count)
    ]
    await box.soon(lambda report: report["live_rows"] + report["waiting"] == wanted)
    return tasks


@pytest.mark.timeout(200)
def test_every_refused_client_of_a_burst_is_told_so_and_counted(tmp_path: Path) -> None:
    """300 of one tenant at once: as many are let in as there is room for, all others are refused."""

    async def burst(box: Box) -> list[tuple[Ending, Reply]]:
        async with asyncio.timeout(120):
            return list(await asyncio.gather(*(ask(box, "greedy", n, f"x{WORK}") for n in range(300))))

    with shared_box(tmp_path) as box:
        replies = asyncio.run(burst(box))
        box.idle()
        statuses = Counter(end.status for end, _ in replies)
        assert set(statuses) == {200, 429}
        assert statuses[200] >= SLOTS + MOST_OF_TENANT
        assert box.metric("error_answers_total", status="429") == statuses[429]
        assert sum(box.ended().values()) == statuses[200]


@pytest.mark.timeout(200)
def test_retry_after_is_true_for_who_comes_back_alone(tmp_path: Path, long: bool) -> None:
    async def probe(box: Box) -> tuple[int, int]:
        """What it was told, and the status when it came back."""
        # A request's time in a slot must be known before the line's time can be.
        await asyncio.gather(*(ask(box, "greedy", number, f"x{LONG_WORK}") for number in range(2 * SLOTS)))
        tasks = await fill(box, "greedy", SLOTS + MOST_OF_TENANT, f"x{LONG_WORK}")
        refused, reply = await ask(box, "greedy", 0, "x")
        assert refused.status == 429
        seconds = int(reply.headers["retry-after"])
        await asyncio.sleep(seconds)
        end, _ = await ask(box, "greedy", 0, "x")
        await asyncio.gather(*tasks)
        return seconds, end.status

    with shared_box(tmp_path) as box:
        probes = [asyncio.run(probe(box)) for _ in range(10 if long else 2)]
    told("Retry-After of one that comes back alone: seconds, status then", {"probes": probes})
    assert {status for _, status in probes} == {200}
    assert max(seconds for seconds, _ in probes) <= 10


@pytest.mark.timeout(200)
def test_a_full_queue_is_told_in_each_routes_way(tmp_path: Path) -> None:
    full = MOST_WAITING // MOST_OF_TENANT

    async def refused(box: Box) -> list[tuple[str, Ending]]:
        """Eight tenants have filled the line; a ninth, which has nothing in it, asks on every route."""
        holders = await fill(box, "tenant0", SLOTS, "[pause]" * 250, 300)
        await box.soon(lambda report: report["live_rows"] == SLOTS)
        tasks = []
        for number in range(full):
            tasks += await fill(box, f"tenant{number + 1}", MOST_OF_TENANT, "x")
        sent = {
            route: request_bytes(route, body(route, "x"), f"tenant{full + 1}-key")
            for route in (*ROUTES, COUNT)
        }
        replies = [(route, ending(route, False, await exchange(box.port, sent[route]))) for route in sent]
        own, _ = await ask(box, "tenant1", 2, "x")
        assert own.status == 529, "the whole line's limit comes first"
        for holder in holders:
            assert not holder.done()
            holder.cancel()
        assert {end.how for end, _ in await asyncio.gather(*tasks)} == {"answered"}
        return replies

    with shared_box(tmp_path) as box:
        for route, end in asyncio.run(refused(box)):
            assert end.status == (529 if route.startswith(MESSAGES) else 429), route
        box.idle()
        assert box.metric("error_answers_total", status="429") == 3
        assert box.metric("error_answers_total", status="529") == 3
