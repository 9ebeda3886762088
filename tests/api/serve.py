"""The server under test, a process of its own: `python -m tests.api.serve FD MODEL`.

FD is a listening socket, MODEL a file name for the scripted backend. Everything is real
but the model: uvicorn, the application, the engine's client and its worker.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from starlette.applications import Starlette

from mashbox.api.app import create_app
from mashbox.api.health import Identity
from mashbox.api.request_counts import RequestCounts
from mashbox.api.settings import ServeConfig
from mashbox.chat.prompt import FormatSource
from mashbox.chat.service import ChatService
from mashbox.config import ModelConfig, WorkerConfig
from mashbox.engine.client import EngineClient
from mashbox.engine.supervisor import Supervisor
from mashbox.engine.types import ModelFacts
from mashbox.http.allowed import Allowed
from mashbox.http.keys import Keys
from mashbox.http.protocol import WireLimits, guarded
from mashbox.http.sse import StreamLimits

MODEL_ID = "org/scripted"
CONTEXT = 8192
SLOTS = 2
WIRE_LIMITS = WireLimits(stalled_s=1.0, silent_s=1.0, linger_s=2.0)


def format_source(facts: ModelFacts) -> FormatSource:
    assert facts.chat_template is not None
    return FormatSource(facts.chat_template, facts.bos, facts.eos, facts.control_tokens, stop=("<turn>",))


def build(path: str) -> Starlette:
    model = ModelConfig(path=path, context=CONTEXT, slots=SLOTS, threads=1)
    supervisor = Supervisor(WorkerConfig(model, backend="tests.scripted:ScriptedBackend"))
    counts = RequestCounts()
    engine = EngineClient(supervisor, counts)
    chat = ChatService(engine, format_source)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        running = asyncio.create_task(supervisor.run())
        yield
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await chat.close()

    return create_app(
        config=ServeConfig(MODEL_ID, "scripted.gguf", CONTEXT, SLOTS),
        engine=engine,
        chat=chat,
        counts=counts,
        identity=lambda: Identity(deployment_id="d1"),
        keys=Keys(),
        allowed=Allowed(),
        lifespan=lifespan,
        stream_limits=StreamLimits(keep_alive_s=0.3),
    )


if __name__ == "__main__":
    # Not uvicorn's `fd`: it takes every descriptor for a unix socket and so leaves TCP_NODELAY off.
    config = uvicorn.Config(
        build(sys.argv[2]),
        http=guarded(WIRE_LIMITS),
        log_level="warning",
        ws="none",
        timeout_graceful_shutdown=2,
        timeout_keep_alive=3,
    )
    uvicorn.Server(config).run(sockets=[socket.socket(fileno=int(sys.argv[1]))])
