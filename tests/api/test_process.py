"""The worker's supervisor and the server's start and end, with real processes and a scripted model."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from mashbox import machine, server
from mashbox.api.settings import ServeConfig
from mashbox.config import ModelConfig, WorkerConfig
from mashbox.engine import supervisor as supervising
from mashbox.engine.supervisor import Supervisor, WorkerStatus


def worker_config(path: str) -> WorkerConfig:
    return WorkerConfig(ModelConfig(path, 256, 1, threads=1), backend="tests.scripted:ScriptedBackend")


@asynccontextmanager
async def supervised(path: str) -> AsyncIterator[Supervisor]:
    supervisor = Supervisor(worker_config(path))
    running = asyncio.create_task(supervisor.run())
    yield supervisor
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def until(supervisor: Supervisor, true: Callable[[WorkerStatus], bool]) -> WorkerStatus:
    async with asyncio.timeout(20):
        while True:
            if true(status := supervisor.status):
                return status
            await asyncio.sleep(0.01)


def test_a_model_that_cannot_be_loaded_again_is_tried_until_it_can(tmp_path: Path) -> None:
    file = tmp_path / "model"
    file.touch()

    async def scenario() -> None:
        async with supervised(str(file)) as supervisor:
            ready = await until(supervisor, lambda status: status.state == "ready")
            assert ready.pid is not None
            file.unlink()
            os.kill(ready.pid, signal.SIGKILL)
            await until(supervisor, lambda status: status.restarts == 2)
            assert supervisor.status.state == "restarting"
            file.touch()
            await until(supervisor, lambda status: status.state == "ready")

    asyncio.run(scenario())


def test_a_worker_that_hangs_while_it_loads_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervising, "START_TIMEOUT_S", 3.0)

    async def scenario() -> None:
        async with supervised("slow") as supervisor:
            loading = await until(supervisor, lambda status: status.pid is not None)
            assert loading.pid is not None
            os.kill(loading.pid, signal.SIGSTOP)
            status = await until(supervisor, lambda status: status.state == "failed")
            assert status.error is not None
            assert "signal 9" in status.error

    asyncio.run(scenario())


def test_ending_a_server_that_loads_is_no_error() -> None:
    deployment = server.Deployment(ServeConfig("m", "m.gguf", 256, 1), worker_config("slow"), paths=())

    async def scenario() -> None:
        asyncio.get_running_loop().call_later(1.0, os.kill, os.getpid(), signal.SIGTERM)
        await server.run(deployment, machine.bind("127.0.0.1", 0), lambda facts: pytest.fail("ready"))

    asyncio.run(scenario())
