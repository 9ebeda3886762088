"""The engine's client and supervisor with real worker processes and the scripted backend."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from mashbox.config import ModelConfig, WorkerConfig
from mashbox.engine import supervisor as module
from mashbox.engine.client import EngineClient
from mashbox.engine.supervisor import Supervisor
from mashbox.engine.types import Finished, Sampling, Segment, Silent, Submit

BACKEND = "tests.scripted:ScriptedBackend"


def make(path: str = "m", backend: str = BACKEND) -> Supervisor:
    return Supervisor(WorkerConfig(ModelConfig(path, context=512, slots=1, threads=1), backend=backend))


@asynccontextmanager
async def running(supervisor: Supervisor) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(supervisor.run())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(true: Callable[[], bool]) -> None:
    while not true():  # noqa: ASYNC110
        await asyncio.sleep(0.01)


def run(test: Coroutine[Any, Any, None]) -> None:
    async def main() -> None:
        async with asyncio.timeout(20):
            await test

    asyncio.run(main())


def submission(text: str) -> Submit:
    return Submit("", (Segment(text, False),), Sampling())


def test_a_request_that_cannot_be_sent_is_forgotten() -> None:
    async def test() -> None:
        supervisor = make()
        client = EngineClient(supervisor)
        async with running(supervisor):
            await supervisor.until_settled()
            with pytest.raises(UnicodeEncodeError):
                await client.submit(submission("half a pair: \ud83d"))
            assert client.status.running == 0
            events = [event async for event in await client.submit(submission("hi"))]
            assert isinstance(events[-1], Finished)

    run(test())


def test_a_server_that_was_held_up_does_not_blame_its_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HEARTBEAT_TIMEOUT_S", 1.0)

    async def test() -> None:
        supervisor = make()
        async with running(supervisor):
            pid = (await supervisor.until_settled()).pid
            assert pid is not None
            await asyncio.sleep(0.3)
            # Both stand still, as when the machine is paused.
            os.kill(pid, signal.SIGSTOP)
            time.sleep(1.5)  # noqa: ASYNC251
            asyncio.get_running_loop().call_later(0.3, os.kill, pid, signal.SIGCONT)
            await asyncio.sleep(1.5)
            assert (supervisor.status.pid, supervisor.status.restarts) == (pid, 0)

    run(test())


def test_a_worker_may_be_silent_for_as_long_as_it_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HEARTBEAT_TIMEOUT_S", 1.0)

    async def test() -> None:
        supervisor = make()
        async with running(supervisor):
            await supervisor.until_settled()
            pid = supervisor.status.pid
            assert pid is not None
            os.kill(pid, signal.SIGSTOP)
            await asyncio.sleep(0.1)  # nothing that it said before is to be read later
            stopped = time.monotonic()
            supervisor._receive([Silent(2.0)])
            await until(lambda: supervisor.status.restarts == 1)
            assert time.monotonic() - stopped >= 3.0

    run(test())


def test_a_worker_that_cannot_be_started_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        supervisor = make()
        start = asyncio.create_subprocess_exec
        async with running(supervisor):
            status = await supervisor.until_settled()
            assert status.pid is not None

            async def refuse(*args: Any, **options: Any) -> Any:
                monkeypatch.setattr(asyncio, "create_subprocess_exec", start)
                raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

            monkeypatch.setattr(asyncio, "create_subprocess_exec", refuse)
            os.kill(status.pid, signal.SIGKILL)
            await until(lambda: supervisor.status.restarts == 2)
            await until(lambda: supervisor.status.state == "ready")

    run(test())


def test_a_worker_that_cannot_be_started_at_first_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*args: Any, **options: Any) -> Any:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    async def test() -> None:
        monkeypatch.setattr(asyncio, "create_subprocess_exec", refuse)
        supervisor = make()
        await supervisor.run()
        assert supervisor.status.state == "failed"
        assert "cannot be started" in (supervisor.status.error or "")

    run(test())


def test_stopping_while_a_worker_is_being_ended_is_not_forgotten() -> None:
    async def test() -> None:
        supervisor = make()
        async with running(supervisor) as task:
            pid = (await supervisor.until_settled()).pid
            assert pid is not None
            os.kill(pid, signal.SIGSTOP)
            await asyncio.sleep(0.1)
            assert supervisor._transport is not None
            supervisor._transport.abort()  # the stream ends, the process does not
            await asyncio.sleep(0.3)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait_for(asyncio.shield(task), 3)
            assert task.cancelled()
            assert supervisor.status.state == "stopped"
            with pytest.raises(ProcessLookupError):
                os.kill(pid, 0)

    run(test())


@pytest.mark.parametrize("mib", [1 << 28, 10**13])
def test_more_memory_for_states_than_the_system_has_addresses_for_is_told(mib: int) -> None:
    async def test() -> None:
        model = ModelConfig("m", context=512, slots=1, threads=1, cache_ram_mib=mib)
        supervisor = Supervisor(WorkerConfig(model, backend=BACKEND))
        async with running(supervisor):
            status = await supervisor.until_settled()
            assert status.state == "failed"
            assert status.error is not None
            assert f"Cannot reserve {mib} MiB for saved prompt states" in status.error

    run(test())
