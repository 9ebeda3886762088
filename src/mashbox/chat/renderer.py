"""Renders in processes of their own, which can be killed: a template cannot hold up the server.

Two processes take requests out of one line, the tenants in turns. One that
takes longer than `DEADLINE_S` is ended with its process, and only its own request fails.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass, field

from mashbox.chat.formats.choose import choose_format
from mashbox.chat.prompt import FormatSource, Prompt, answer_parser
from mashbox.chat.render_process import EndedError, RenderProcess
from mashbox.chat.render_wire import Ask, Built, Ready, Refused, Reply, Unfit, encode_ask
from mashbox.chat.render_worker import DEADLINE_S
from mashbox.chat.stream_parser import AnswerParser
from mashbox.chat.types import ChatRequest
from mashbox.config import DEFAULT_LOG, LogConfig
from mashbox.engine.fair_line import FairLine
from mashbox.engine.types import Segment
from mashbox.errors import ConfigError, EngineError, InternalError, InvalidRequestError, RequestError

log = logging.getLogger(__name__)

PROCESSES = 2
LATE_S = 1.0
"""What a process may be late with its own end before it is killed from here: it may be stopped."""
START_TIMEOUT_S = 60.0
"""For a new process to be ready: it has to be read from a disk that may be slow."""
FIRST_DELAY_S = 0.1
LONGEST_DELAY_S = 5.0
MOST_TRIES = 2
"""How often a request is rendered whose process dies; once it may have been for another reason."""

_TEMPLATE_ERROR = ("messages", "template_error")


@dataclass(eq=False, slots=True)
class _Job:
    """A request in the line; nobody waits for it any more once its future is done."""

    tenant: str
    frame: bytes
    reply: asyncio.Future[Reply]
    tries: int = 0


@dataclass(eq=False, slots=True)
class _Line:
    """The requests that wait for a process; tenants take turns."""

    jobs: FairLine[_Job] = field(default_factory=FairLine)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)

    def add(self, job: _Job) -> None:
        self.jobs.add(job)
        self.arrived.set()

    async def next(self, process: RenderProcess) -> _Job | None:
        """The next one that somebody still waits for; None once the process is gone."""
        while not process.gone:
            while (job := next(iter(self.jobs), None)) is not None:
                if not job.reply.done():
                    self.jobs.take(job)
                    return job
                self.jobs.remove(job)
            self.arrived.clear()
            await self.arrived.wait()
        return None

    def fail(self, error: RequestError) -> None:
        """All that wait."""
        while (job := next(iter(self.jobs), None)) is not None:
            self.jobs.remove(job)
            _settle(job, error)


class Renderer:
    """Makes the prompts of one chat template, in processes that it keeps alive. Needs a running loop."""

    def __init__(
        self, source: FormatSource, deadline_s: float = DEADLINE_S, log_config: LogConfig = DEFAULT_LOG
    ) -> None:
        self.source = source
        self._deadline_s = deadline_s
        self._log_config = log_config
        self._line = _Line()
        self._alive: set[int] = set()
        self._ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._keepers = [asyncio.create_task(self._keep(n > 0)) for n in range(PROCESSES)]

    @property
    def processes(self) -> frozenset[int]:
        """The ids of those that are ready."""
        return frozenset(self._alive)

    async def ready(self) -> None:
        """Wait for the first process. Raises ConfigError when the template is no use."""
        await asyncio.shield(self._ready)

    async def prompt(self, request: ChatRequest, tenant: str = "") -> Prompt:
        """`build_prompt` of the request, in its tenant's turn.

        Raises InvalidRequestError (what the template refuses, or what takes it too long), and EngineError
        when no process can be started.
        """
        return await self._ask(Ask(request, to_answer=True), tenant)

    async def segments(self, request: ChatRequest, tenant: str = "") -> tuple[Segment, ...]:
        """`render` of the request. Raises the same."""
        return (await self._ask(Ask(request, to_answer=False), tenant)).segments

    def parser(self, request: ChatRequest) -> AnswerParser:
        """What reads the answer to the request; once the renderer is ready."""
        return answer_parser(choose_format(None, self._ready.result()), request)

    async def close(self) -> None:
        """End the processes; requests that wait end with an error."""
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        self._line.fail(EngineError("The server is shutting down and ended this request."))
        self._ready.cancel()

    async def _ask(self, ask: Ask, tenant: str) -> Prompt:
        job = _Job(tenant, encode_ask(ask), asyncio.get_running_loop().create_future())
        self._line.add(job)
        match await job.reply:
            case Built() as built:
                return built.prompt
            case Refused() as refused:
                raise InvalidRequestError(refused.message, param=refused.param, code=refused.code)
        raise InternalError

    async def _keep(self, later: bool) -> None:
        """Keep one process alive; the later one starts once the first has found the template of use."""
        if later:
            await asyncio.wait([self._ready])
            if self._ready.cancelled() or self._ready.exception():
                return
        delay = FIRST_DELAY_S
        while True:
            process = await self._start()
            if process is not None:
                delay = FIRST_DELAY_S
                await self._work(process)
                continue
            if self._ready.done() and (self._ready.cancelled() or self._ready.exception()):
                return
            if not self._alive:
                self._line.fail(EngineError("Server error: the chat template's process cannot be started."))
            await asyncio.sleep(delay)
            delay = min(delay * 2, LONGEST_DELAY_S)

    async def _start(self) -> RenderProcess | None:
        """A process that is ready, or None: it was told to the log, or to who waits for the first one."""
        try:
            process = await RenderProcess.start(self._deadline_s, self._log_config, self._line.arrived.set)
        except OSError as error:
            self._unfit(f"The chat template's process cannot be started: {error.strerror or error}.")
            return None
        try:
            reply = await process.ask(encode_ask(self.source), DEADLINE_S, START_TIMEOUT_S)
        except EndedError as error:
            does = "does not end" if not error.in_time else "cannot be read"
            self._unfit(f"The chat template {does}: {error.reason}.")
            return None
        except BaseException:
            await process.end()
            raise
        if isinstance(reply, Ready):
            if not self._ready.done():
                self._ready.set_result(reply.tools)
            return process
        await process.end()
        self._unfit(reply.message if isinstance(reply, Unfit) else "The chat template cannot be read.")
        return None

    def _unfit(self, message: str) -> None:
        if self._ready.done():
            log.error("%s", message)
            return
        self._ready.set_exception(ConfigError(message))
        self._ready.exception()  # nobody need have waited for it

    async def _work(self, process: RenderProcess) -> None:
        """Render one request after another, until the process is gone."""
        self._alive.add(process.pid)
        try:
            while (job := await self._line.next(process)) is not None:
                if not await self._render(process, job):
                    return
        finally:
            self._alive.discard(process.pid)
            await process.end()

    async def _render(self, process: RenderProcess, job: _Job) -> bool:
        """False: the process is gone."""
        begun = time.monotonic()
        try:
            seconds = self._deadline_s
            _settle(job, await process.ask(job.frame, seconds, seconds + LATE_S))
        except EndedError as error:
            log.warning(
                "a rendering of the chat template ended with its process after %.1f s: %s",
                *(time.monotonic() - begun, error.reason),
            )
            job.tries += 1
            if error.in_time and job.tries < MOST_TRIES:
                self._line.add(job)
            else:
                _settle(job, Refused(f"The model's chat template fails: {error.reason}", *_TEMPLATE_ERROR))
            return False
        except asyncio.CancelledError:
            _settle(job, EngineError("The server is shutting down and ended this request."))
            raise
        return True


def _settle(job: _Job, outcome: Reply | RequestError) -> None:
    """Give a job its outcome, if somebody waits for it."""
    if job.reply.done():
        return
    if isinstance(outcome, RequestError):
        job.reply.set_exception(outcome)
    else:
        job.reply.set_result(outcome)


def check_template(source: FormatSource) -> None:
    """Compile and probe a template in a process of its own. Raises ConfigError when it is no use."""
    asyncio.run(_check(source))


async def _check(source: FormatSource) -> None:
    renderer = Renderer(source)
    try:
        await renderer.ready()
    finally:
        await renderer.close()
