"""One soak from the servers' start to its outcome."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import ExitStack, asynccontextmanager
from typing import Any

import httpx2 as httpx
from bench.process import HOST, Launch, Server
from bench.prompts import fresh_text

from soak.check import Checks
from soak.cold import Cold
from soak.config import Setup
from soak.errors import SoakError
from soak.exchange import Ask, exchange
from soak.markers import Markers
from soak.outcome import Memory, Outcome
from soak.traffic import Traffic
from soak.watch import Health, Watch, forget_peak, read_health, resident

WARM_UP_WORDS = 200
LAST_WORD_S = 10.0
"""How long requests may hold a slot after their clients have gone."""


def soak(setup: Setup) -> Outcome:
    """Start what is needed, run the load, end it all."""
    launch, cold = setup.launch(), setup.launch_cold() if setup.exact else None
    with ExitStack() as stack:
        stack.enter_context(Server(launch))
        if cold is not None:
            stack.enter_context(Server(cold))
        try:
            return asyncio.run(_soak(setup, launch, cold))
        except* SoakError as group:
            # The first one is the cause: a task group ends the others because of it.
            raise SoakError(str(group.exceptions[0])) from group


async def _soak(setup: Setup, launch: Launch, cold: Launch | None) -> Outcome:
    async with (
        httpx.AsyncClient(base_url=_url(launch), timeout=120) as http,
        httpx.AsyncClient(base_url=_url(cold or launch), timeout=120) as reference,
    ):
        markers = Markers(setup.seed)
        checks = Checks(markers, None if cold is None else Cold(reference))
        watch = Watch(_url(launch), setup.cap)
        traffic = Traffic(_url(launch), setup.load, setup.seed, markers, checks.take)
        await _warm_up(http, setup)
        pid = (await read_health(http)).worker_pid
        warm = resident(pid)
        forget_peak(pid)
        async with _beside(watch.run(), *([checks.compare()] if cold is not None else [])):
            await _drive(traffic, setup.minutes)
            last = await _idle(http)
            peak = resident(pid, peak=True)
            await checks.settled()
        watch.take(last)
    return _outcome(setup, checks, watch, traffic, Memory(warm, peak, setup.cap), last)


def _outcome(
    setup: Setup, checks: Checks, watch: Watch, traffic: Traffic, memory: Memory, last: Health
) -> Outcome:
    findings = [*checks.findings, *watch.faults]
    if last.live_rows or last.waiting:
        findings.append(f"{last.live_rows} requests hold slots and {last.waiting} wait after the end")
    counted = checks.counted + traffic.counted
    counted["health reports"] = watch.samples
    counted["states evicted"] = last.host_cache_evictions
    counted["longest line"] = watch.longest_line
    return Outcome(tuple(findings), counted, memory, watch.fullest, setup.repeats)


def _url(launch: Launch) -> str:
    return f"http://{HOST}:{launch.port}"


async def _warm_up(http: httpx.AsyncClient, setup: Setup) -> None:
    """Let every slot prefill and decode, so that the library has touched its memory."""
    prompts = [fresh_text(WARM_UP_WORDS // setup.slots, f"warm {slot}") for slot in range(setup.slots)]
    await asyncio.gather(*(exchange(http, Ask((("user", prompt),), 8)) for prompt in prompts))


async def _drive(traffic: Traffic, minutes: float | None) -> None:
    if minutes is not None:
        asyncio.get_running_loop().call_later(minutes * 60, traffic.stop.set)
    await traffic.run()


async def _idle(http: httpx.AsyncClient) -> Health:
    """The report once nothing runs or waits, or after ten seconds, whatever it says then."""
    deadline = asyncio.get_running_loop().time() + LAST_WORD_S
    while True:
        health = await read_health(http)
        if not health.live_rows + health.waiting or asyncio.get_running_loop().time() > deadline:
            return health
        await asyncio.sleep(0.05)


@asynccontextmanager
async def _beside(*works: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run these while the block runs; one that fails ends the block."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(work) for work in works]
        yield
        for task in tasks:
            task.cancel()
