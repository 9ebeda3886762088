"""The server's side of the engine: submit a request, read its events, give it up.

Every stream ends exactly once: with `Finished`, or by raising an `EngineError`.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import deque
from dataclasses import dataclass
from typing import Literal

from mashbox.engine.observer import Observer, Unobserved
from mashbox.engine.supervisor import Supervisor
from mashbox.engine.types import (
    EMPTY_CACHE,
    Accepted,
    CacheReport,
    Cancel,
    Count,
    Counted,
    Failed,
    Finished,
    Invalid,
    ModelFacts,
    Refused,
    RequestEvent,
    Segment,
    Started,
    Submit,
    TextDelta,
)
from mashbox.errors import (
    ContextLengthError,
    EngineError,
    InvalidRequestError,
    NotReadyError,
    OverloadedError,
    RequestError,
)

MAX_WAITING = 32
"""Requests that may wait for a slot; one more gets 429."""

LOADING_RETRY_S = 2
WORKER_LOST = "Server error: the model's worker ended while it worked on this request. Please send it again."
"""Some clients only send a request again when its error says "server error"."""

SHUTTING_DOWN = "The server is shutting down and ended this request. Please send it again."

EngineState = Literal["loading", "ready", "restarting", "draining", "failed"]
Event = Started | TextDelta | Finished


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """The engine as health and metrics show it."""

    state: EngineState
    running: int
    waiting: int
    worker_pid: int | None
    worker_restarts: int
    facts: ModelFacts | None
    progress: float
    kv_tokens: int = 0
    """Tokens that the requests in slots hold, at most half a second old."""
    cache: CacheReport = EMPTY_CACHE


class EventStream:
    """The events of one accepted request: text, then `Finished`; or an error raised once."""

    def __init__(self, request_id: str, client: EngineClient, begun: float) -> None:
        self.id = request_id
        self.prompt_tokens = 0
        self.begun = begun
        self.has_text = False
        self._client = client
        self._events: deque[Event | RequestError] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._ended = False

    def __aiter__(self) -> EventStream:
        return self

    async def __anext__(self) -> Event:
        while not self._events:
            if self._ended:
                raise StopAsyncIteration
            await self._wait()
        event = self._events.popleft()
        if isinstance(event, RequestError):
            raise event
        return event

    async def accepted(self) -> None:
        """Wait until the worker has taken the request; raises what it was refused with."""
        while not self.prompt_tokens:
            if self._events and isinstance(self._events[0], RequestError):
                raise self._events[0]
            await self._wait()

    async def _wait(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        await self._waiter

    def accept(self, prompt_tokens: int) -> None:
        """The worker has taken the request."""
        self.prompt_tokens = prompt_tokens
        self._wake()

    def push(self, event: Event | RequestError) -> None:
        """Append an event; `Finished` and errors are the last."""
        self._events.append(event)
        self._ended = not isinstance(event, Started | TextDelta)
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def close(self) -> None:
        """Give the request up if it still runs; may be called again."""
        if not self._ended:
            self._ended = True
            self._client.forget(self)
            self._wake()


class EngineClient:
    """Admits requests and hands each its events."""

    def __init__(self, supervisor: Supervisor, observer: Observer | None = None) -> None:
        self._supervisor = supervisor
        self._observer = observer or Unobserved()
        self._streams: dict[str, EventStream] = {}
        self._counts: dict[str, asyncio.Future[int]] = {}
        self._draining = False
        self._mean_s = 1.0
        supervisor.listen(self)

    @property
    def status(self) -> EngineStatus:
        """A snapshot; the counts are of requests that have not ended."""
        worker = self._supervisor.status
        slots = worker.facts.slots if worker.facts else 0
        state: EngineState = "draining"
        if not self._draining and worker.state != "stopped":
            state = worker.state
        return EngineStatus(
            state=state,
            running=min(len(self._streams), slots),
            waiting=max(0, len(self._streams) - slots),
            worker_pid=worker.pid,
            worker_restarts=worker.restarts,
            facts=worker.facts,
            progress=worker.progress,
            kv_tokens=worker.kv_tokens,
            cache=worker.cache,
        )

    def drain(self) -> None:
        """Take no more requests; those at hand go on."""
        self._draining = True

    def abort(self) -> None:
        """End every request at hand with an error: the server shuts down."""
        streams, self._streams = self._streams, {}
        for stream in streams.values():
            self._supervisor.send(Cancel(stream.id))
            self._fail(stream, SHUTTING_DOWN)

    async def submit(self, command: Submit, begun: float | None = None) -> EventStream:
        """Send a request to the worker and wait until it is accepted.

        Raises NotReadyError, OverloadedError, ContextLengthError or EngineError. `command.id` must
        be unique. `begun` is the monotonic time at which the request arrived; now, if not given.
        """
        self._check_admission()
        self._check_length(command)
        stream = EventStream(command.id, self, time.monotonic() if begun is None else begun)
        self._supervisor.send(command)  # raises for a text that cannot be sent
        self._streams[stream.id] = stream
        try:
            await stream.accepted()
        except BaseException:  # cancelled: nobody else would close it
            stream.close()
            raise
        return stream

    async def count(self, segments: tuple[Segment, ...]) -> int:
        """The number of tokens of a prompt. Raises NotReadyError or EngineError."""
        self._check_ready()
        request_id = uuid.uuid4().hex
        counted: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._counts[request_id] = counted
        try:
            self._supervisor.send(Count(request_id, segments))
            return await counted
        finally:
            if self._counts.pop(request_id, None) and not counted.done():
                self._supervisor.send(Cancel(request_id))

    def _check_ready(self) -> None:
        state = self.status.state
        if state != "ready":
            reasons = {"loading": "still loading", "restarting": "starting again after a fault"}
            reason = reasons.get(state, "shutting down")
            raise NotReadyError(f"The model is {reason}. Please try again.", retry_after=LOADING_RETRY_S)

    def _check_admission(self) -> None:
        self._check_ready()
        status = self.status
        if status.waiting >= MAX_WAITING:
            slots = status.facts.slots if status.facts else 1
            wait = self._mean_s * (status.waiting / slots)
            raise OverloadedError(
                f"Too many requests are waiting for a slot ({status.waiting}). Please try again later.",
                retry_after=max(1, min(60, round(wait))),
            )

    def _check_length(self, command: Submit) -> None:
        """Refuse what cannot fit before its tokens are counted, which can take minutes."""
        facts = self.status.facts
        if facts is None:
            return
        least = sum(len(segment.text) for segment in command.segments) // facts.longest_piece
        if least >= facts.context:
            raise ContextLengthError(least, facts.context, counted=False)

    def forget(self, stream: EventStream) -> None:
        """A stream was given up: the worker drops its request."""
        if self._streams.pop(stream.id, None) is not None:
            self._supervisor.send(Cancel(stream.id))
            self._observer.given_up()

    def _fail(self, stream: EventStream, message: str) -> None:
        self._observer.failed()
        stream.push(EngineError(message))

    def receive(self, events: list[RequestEvent]) -> None:
        """Events from the worker, in order; those of forgotten requests are dropped."""
        for event in events:
            if (stream := self._streams.get(event.id)) is not None:
                self._deliver(stream, event)
            elif (counted := self._counts.get(event.id)) is not None and not counted.done():
                self._settle(counted, event)

    @staticmethod
    def _settle(counted: asyncio.Future[int], event: RequestEvent) -> None:
        if isinstance(event, Counted):
            counted.set_result(event.tokens)
        elif isinstance(event, Failed):
            counted.set_exception(EngineError(event.message))

    def _deliver(self, stream: EventStream, event: RequestEvent) -> None:
        match event:
            case TextDelta():
                if not stream.has_text:
                    stream.has_text = True
                    self._observer.first_text(time.monotonic() - stream.begun)
                stream.push(event)
                return
            case Started():
                self._observer.started(stream.prompt_tokens, event.cached_tokens)
                stream.push(event)
                return
            case Accepted():
                stream.accept(event.prompt_tokens)
                return
            case Finished():
                seconds = time.monotonic() - stream.begun
                self._mean_s += 0.1 * (seconds - self._mean_s)
                self._observer.finished(event.reason, event.usage, seconds)
                stream.push(event)
            case Invalid():
                stream.push(InvalidRequestError(event.message))
            case Refused(prompt_tokens=0):
                stream.push(InvalidRequestError("The prompt has no tokens."))
            case Refused():
                stream.push(ContextLengthError(event.prompt_tokens, event.context))
            case Failed():
                self._fail(stream, event.message)
        del self._streams[stream.id]

    def lost(self) -> None:
        """The worker is gone: every request it had ends."""
        streams, self._streams = self._streams, {}
        for stream in streams.values():
            self._fail(stream, WORKER_LOST)
        for counted in self._counts.values():
            if not counted.done():
                counted.set_exception(EngineError(WORKER_LOST))
