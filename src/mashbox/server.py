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
from dataclasses import dataclass, field
from pathlib import Path

import uvicorn

from mashbox.api.app import create_app
from mashbox.api.health import Identity
from mashbox.api.request_counts import RequestCounts
from mashbox.api.settings import ServeConfig
from mashbox.catalog.fingerprint import weights_sha256
from mashbox.chat.prompt import FormatSource
from mashbox.chat.service import ChatService
from mashbox.chat.template_source import FallbackTemplate, fallback_template
from mashbox.config import WorkerConfig
from mashbox.engine.certificate import Subject, standing
from mashbox.engine.client import GRACE_S, EngineClient
from mashbox.engine.supervisor import Supervisor
from mashbox.engine.types import ModelFacts
from mashbox.errors import ConfigError
from mashbox.http.allowed import Allowed
from mashbox.http.keys import Keys
from mashbox.http.protocol import DEFAULT_WIRE_LIMITS, WireLimits, guarded
from mashbox.http.sse import DEFAULT_LIMITS, StreamLimits
from mashbox.logs.setup import log_loop_failure

log = logging.getLogger(__name__)

ERRORS_OUT_S = 2.0
"""Time for the last bytes of all answers to go out."""


@dataclass(frozen=True, slots=True)
class Deployment:
    """Everything one server needs to start."""

    serve: ServeConfig
    worker: WorkerConfig
    paths: tuple[Path, ...]
    chat_template: str | None = None
    """Text of a template that replaces the model's own."""
    stream_limits: StreamLimits = DEFAULT_LIMITS
    wire_limits: WireLimits = DEFAULT_WIRE_LIMITS
    tool_format: str | None = None
    """Name of the tool-call format; None: the one that fits the template."""
    keys: Keys = field(default_factory=Keys)
    allowed: Allowed = field(default_factory=Allowed)


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


def format_source(deployment: Deployment, facts: ModelFacts) -> FormatSource:
    """What the chat format is made of."""
    template = template_source(deployment.chat_template, facts)
    return FormatSource(
        template.source,
        facts.bos,
        facts.eos,
        facts.control_tokens,
        template.stop,
        deployment.tool_format,
        branching=not facts.can_trim,
    )


class HttpServer(uvicorn.Server):
    """uvicorn with our signals: one drains, a second one ends at once; SIGHUP reads the keys again."""

    def __init__(self, config: uvicorn.Config, engine: EngineClient, keys: Keys) -> None:
        super().__init__(config)
        self._engine = engine
        self._leaving: asyncio.Task[None] | None = None
        self._keys = keys

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Take SIGTERM, SIGINT and SIGHUP while serving, and do not raise them again after."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal)
        loop.add_signal_handler(signal.SIGHUP, self._on_hangup)
        try:
            yield
        finally:
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                loop.remove_signal_handler(number)

    def _on_signal(self) -> None:
        if self._leaving is not None:
            self.should_exit = self.force_exit = True
            self._engine.abort()
            return
        self._engine.drain()
        self._leaving = asyncio.create_task(self._leave())

    async def _leave(self) -> None:
        """Refuse what comes in until what is at hand is done, then close the port."""
        if at_hand := self._engine.at_hand:
            log.info("stopping: %d at hand, %.0f s to finish; once more ends at once", at_hand, GRACE_S)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GRACE_S):
                while self._engine.at_hand:  # noqa: ASYNC110 (rare, and costs nothing elsewhere)
                    await asyncio.sleep(0.05)
        self._engine.abort()
        self.should_exit = True

    def _on_hangup(self) -> None:
        """Read the key file again; without one this does nothing, and a bad one changes nothing."""
        if self._keys.file is None:
            return
        try:
            self._keys.reload()
        except ConfigError as error:
            log.error("the keys stay as they were: %s", error)
        else:
            log.info("%s was read again", self._keys.file)


async def run(
    deployment: Deployment, listener: socket.socket, on_ready: Callable[[ModelFacts], None]
) -> None:
    """Serve until a signal ends it. Raises ConfigError when the model cannot be loaded."""
    asyncio.get_running_loop().set_exception_handler(log_loop_failure)
    supervisor = Supervisor(deployment.worker)
    counts = RequestCounts()
    engine = EngineClient(supervisor, counts)
    identity = ModelIdentity(deployment, engine)
    chat = ChatService(engine, lambda facts: format_source(deployment, facts), deployment.worker.log)
    app = create_app(
        config=deployment.serve,
        engine=engine,
        chat=chat,
        counts=counts,
        identity=identity.now,
        keys=deployment.keys,
        allowed=deployment.allowed,
        stream_limits=deployment.stream_limits,
    )
    settings = uvicorn.Config(
        app,
        http=guarded(deployment.wire_limits),
        loop="uvloop",
        ws="none",
        lifespan="off",
        access_log=False,
        log_config=None,
        server_header=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=int(ERRORS_OUT_S),
    )
    http = HttpServer(settings, engine, deployment.keys)
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
        await chat.close()
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
        await chat.prepare()
        on_ready(status.facts)
    except ConfigError:
        http.should_exit = True
        raise
