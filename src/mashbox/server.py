"""One server process: the engine's supervisor, the HTTP server, and how both start and end together."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from mashbox.api.app import create_app
from mashbox.api.health import Identity
from mashbox.api.request_counts import RequestCounts
from mashbox.api.settings import ServeConfig
from mashbox.catalog.fingerprint import weights_sha256
from mashbox.chat.prompt import ChatFormat
from mashbox.chat.service import ChatService
from mashbox.chat.template import ChatTemplate
from mashbox.chat.template_source import FallbackTemplate, fallback_template
from mashbox.config import WorkerConfig
from mashbox.engine.certificate import Subject, standing
from mashbox.engine.client import EngineClient
from mashbox.engine.supervisor import Supervisor
from mashbox.engine.types import ModelFacts
from mashbox.errors import ConfigError
from mashbox.http.sse import DEFAULT_LIMITS, StreamLimits

log = logging.getLogger(__name__)

GRACE_S = 10.0
"""How long running requests may go on after the first SIGTERM or SIGINT."""
ERRORS_OUT_S = 2.0
"""Time to tell the rest that they were ended."""


@dataclass(frozen=True, slots=True)
class Deployment:
    """Everything one server needs to start."""

    serve: ServeConfig
    worker: WorkerConfig
    paths: tuple[Path, ...]
    chat_template: str | None = None
    """Text of a template that replaces the model's own."""
    stream_limits: StreamLimits = DEFAULT_LIMITS
    tool_format: str | None = None
    """Name of the tool-call format; None: the one that fits the template."""


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


class ModelIdentity:
    """Ids of what runs, each None until it is known."""

    def __init__(self, deployment: Deployment, engine: EngineClient) -> None:
        self._deployment = deployment
        self._engine = engine
        self._weights: str | None = None

    async def read_weights(self) -> None:
        """Compute the weights' digest beside everything else; a file that vanishes leaves it unknown."""
        stop = threading.Event()  # cancelling does not end a thread, and the process would wait for it
        try:
            with contextlib.suppress(OSError):
                self._weights = await asyncio.to_thread(weights_sha256, self._deployment.paths, stop.is_set)
        finally:
            stop.set()

    def now(self) -> Identity:
        """What is known now."""
        facts = self._engine.status.facts
        if facts is None:
            return Identity()
        build = _digest(facts.build)
        if self._weights is None:
            return Identity(deployment_id=build)
        model = self._deployment.worker.model
        template = template_source(self._deployment.chat_template, facts).source
        components = _digest(self._weights, template)
        policy = (
            f"{model.cache_type_k}/{model.cache_type_v}/{model.flash_attn}/{model.rope_scaling}/{facts.grid}"
            f"/{facts.context}/{'exact' if model.exact else 'default'}"
        )
        return Identity(
            deployment_id=build,
            component_set_sha=components,
            cache_namespace=_digest(self._deployment.serve.model_id, components, policy),
            # Read anew each time: a certificate may be written while this server runs.
            certification=standing(Subject.of(facts.build, self._weights, model), model.context),
        )


def template_source(override: str | None, facts: ModelFacts) -> FallbackTemplate:
    """The chat template in force: the user's, else the model's, else a fallback."""
    own = override or facts.chat_template
    return FallbackTemplate(own, ()) if own else fallback_template(facts.control_tokens)


def chat_format(deployment: Deployment, facts: ModelFacts) -> ChatFormat:
    """Compile the template in force. Raises ConfigError when it is not valid."""
    source = template_source(deployment.chat_template, facts)
    template = ChatTemplate(source.source, bos=facts.bos, eos=facts.eos, control_tokens=facts.control_tokens)
    return ChatFormat.of(template, source.stop, deployment.tool_format, branching=not facts.can_trim)


class HttpServer(uvicorn.Server):
    """uvicorn with our way to end: one signal drains, a second one ends at once."""

    def __init__(self, config: uvicorn.Config, engine: EngineClient) -> None:
        super().__init__(config)
        self._engine = engine

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Take SIGTERM and SIGINT while serving, and do not raise them again after."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal)
        try:
            yield
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)

    def _on_signal(self) -> None:
        if self.should_exit:
            self.force_exit = True
            self._engine.abort()
            return
        self.should_exit = True
        if running := self._engine.status.running:
            log.info("stopping: %d running, %.0f s to finish; once more ends at once", running, GRACE_S)
        self._engine.drain()
        asyncio.get_running_loop().call_later(GRACE_S, self._engine.abort)


async def run(
    deployment: Deployment, listener: socket.socket, on_ready: Callable[[ModelFacts], None]
) -> None:
    """Serve until a signal ends it. Raises ConfigError when the model cannot be loaded."""
    supervisor = Supervisor(deployment.worker)
    counts = RequestCounts()
    engine = EngineClient(supervisor, counts)
    identity = ModelIdentity(deployment, engine)
    chat = ChatService(engine, lambda facts: chat_format(deployment, facts))
    app = create_app(
        config=deployment.serve,
        engine=engine,
        chat=chat,
        counts=counts,
        identity=identity.now,
        stream_limits=deployment.stream_limits,
    )
    settings = uvicorn.Config(
        app,
        http="httptools",
        loop="uvloop",
        ws="none",
        lifespan="off",
        access_log=False,
        log_config=None,
        server_header=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=int(GRACE_S + ERRORS_OUT_S),
    )
    http = HttpServer(settings, engine)
    worker = asyncio.create_task(supervisor.run())
    start = asyncio.create_task(_announce(supervisor, chat, http, on_ready))
    weights = asyncio.create_task(identity.read_weights())
    try:
        await http.serve(sockets=[listener])
    finally:
        # `start` first: a worker that is ended while it loads is no failure to tell.
        start.cancel()
        await asyncio.gather(start, return_exceptions=True)
        worker.cancel()
        weights.cancel()
        await asyncio.gather(worker, weights, return_exceptions=True)
    if not start.cancelled():
        start.result()


async def _announce(
    supervisor: Supervisor,
    chat: ChatService,
    http: HttpServer,
    on_ready: Callable[[ModelFacts], None],
) -> None:
    """Tell when the model is ready; end the server when it will never be."""
    status = await supervisor.until_settled()
    try:
        if status.facts is None:
            raise ConfigError(status.error or "The model's worker was stopped while it loaded.")
        chat.prepare()
        on_ready(status.facts)
    except ConfigError:
        http.should_exit = True
        raise
