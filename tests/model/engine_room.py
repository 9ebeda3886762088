"""The engine without HTTP: a real worker process, its client, and what it reports about its cache."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from mashbox.config import LogConfig, ModelConfig, WorkerConfig
from mashbox.engine.client import EngineClient
from mashbox.engine.event_stream import EventStream
from mashbox.engine.supervisor import Supervisor
from mashbox.engine.types import CacheReport, Finished, Sampling, Segment, Submit, TextDelta, Usage

LLAMA = "mashbox.engine.llama:LlamaBackend"


@dataclass(frozen=True)
class Said:
    """An answer and its counts."""

    text: str
    usage: Usage

    @property
    def computed(self) -> int:
        """Prompt tokens that no cache had."""
        return self.usage.prompt_tokens - self.usage.cached_tokens


@dataclass
class Room:
    """A worker and its client."""

    client: EngineClient
    _ids: itertools.count[int] = field(default_factory=itertools.count)

    async def open(self, prompt: str, max_tokens: int, branches: Sequence[int] = ()) -> EventStream:
        """A request under way; plain text, greedy."""
        segments = (Segment(prompt, False),)
        name = str(next(self._ids))
        return await self.client.submit(
            Submit(name, segments, Sampling(), max_tokens=max_tokens, branches=tuple(branches))
        )

    async def ask(self, prompt: str, max_tokens: int = 8, branches: Sequence[int] = ()) -> Said:
        """A whole answer."""
        events = [event async for event in await self.open(prompt, max_tokens, branches)]
        finished = events[-1]
        assert isinstance(finished, Finished)
        text = "".join(event.text for event in events if isinstance(event, TextDelta))
        return Said(text, finished.usage)

    async def ask_together(self, prompts: Sequence[str], max_tokens: int = 8) -> list[Said]:
        """All at once, in the order of the prompts."""
        return list(await asyncio.gather(*(self.ask(prompt, max_tokens) for prompt in prompts)))

    @property
    def report(self) -> CacheReport:
        """What the worker has said about its cache: before a request's end, all that it began with."""
        return self.client.status.cache


@asynccontextmanager
async def engine_room(model: ModelConfig, backend: str = LLAMA) -> AsyncIterator[Room]:
    """A loaded worker, the same one all through the block; ended after it."""
    supervisor = Supervisor(WorkerConfig(model, backend=backend, log=LogConfig("warning")))
    client = EngineClient(supervisor)
    task = asyncio.create_task(supervisor.run())
    try:
        status = await supervisor.until_settled()
        assert status.state == "ready", status.error
        yield Room(client)
        assert client.status.worker_restarts == 0
        assert client.status.running + client.status.waiting == 0
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
