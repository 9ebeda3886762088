"""The server's side of the engine: a place for each request, its events, and its second try.

Every stream ends exactly once: with `Finished`, or by raising an error.
"""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass
from typing import Literal

from mashbox.engine import ipc
from mashbox.engine.admission import check_admission
from mashbox.engine.event_stream import EventStream
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
    Started,
    Submit,
    TextDelta,
)
from mashbox.errors import (
    ContextLengthError,
    EngineError,
    EngineFault,
    InvalidRequestError,
    NotReadyError,
)

MOST_TRIES = 2
GRACE_S = 10.0
"""How long requests at hand may go on after the server was told to stop."""
WORKER_LOST = "Server error: the model's worker ended while it worked on this request. Please send it again."
"""Some clients only send a request again when its error says "server error"."""

TWICE_FAILED = "Server error: the model failed twice while it worked on this request."

SHUTTING_DOWN = "The server is shutting down and ended this request. Please send it again."

EngineState = Literal["loading", "ready", "restarting", "draining", "failed"]


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """The engine as health and metrics show it."""

    state: EngineState
    running: int
    """Requests that hold a slot."""
    waiting: int
    """Requests that do not yet, from the moment they were let in."""
    worker_pid: int | None
    worker_restarts: int
    facts: ModelFacts | None
    progress: float
    kv_tokens: int = 0
    """Tokens that the requests in slots hold, at most half a second old."""
    cache: CacheReport = EMPTY_CACHE


class EngineClient:
    """Lets requests in, sends them to the worker, and hands each its events.

    A stream is in `_streams` from its place in the line to its end. What was sent to a worker that is
    lost is sent to the next one: at once if it had not been run, else when its consumer wants it `again`.
    """

    def __init__(self, supervisor: Supervisor, observer: Observer | None = None) -> None:
        self._supervisor = supervisor
        self._observer = observer or Unobserved()
        self._streams: dict[str, EventStream] = {}
        self._drains_until: float | None = None
        self._mean_s = 1.0
        """How long requests hold a slot, the late ones most."""
        supervisor.listen(self)

    @property
    def status(self) -> EngineStatus:
        """A snapshot; the counts are of requests that have not ended."""
        worker = self._supervisor.status
        state: EngineState = "draining"
        if self._drains_until is None and worker.state != "stopped":
            state = worker.state
        running = sum([stream.has_slot for stream in self._streams.values()])
        return EngineStatus(
            state=state,
            running=running,
            waiting=sum([stream.is_answer for stream in self._streams.values()]) - running,
            worker_pid=worker.pid,
            worker_restarts=worker.restarts,
            facts=worker.facts,
            progress=worker.progress,
            kv_tokens=worker.kv_tokens,
            cache=worker.cache,
        )

    @property
    def at_hand(self) -> int:
        """Requests that have not ended."""
        return len(self._streams)

    @property
    def retry_after(self) -> int:
        """Seconds until a server that is not ready is likely to be: whole ones, at least 1."""
        until = self._drains_until
        seconds = self._supervisor.ready_in_s if until is None else until - time.monotonic()
        return max(1, round(seconds))

    def drain(self) -> None:
        """Take no more requests; those at hand go on."""
        self._drains_until = time.monotonic() + GRACE_S

    def abort(self) -> None:
        """End every request at hand with an error: the server shuts down."""
        streams, self._streams = self._streams, {}
        for stream in streams.values():
            if stream.sent:
                self._supervisor.send(Cancel(stream.id))
            if stream.frame and stream.is_answer:
                self._observer.failed()
            stream.push(NotReadyError(SHUTTING_DOWN, retry_after=self.retry_after))

    # --- what consumers want ------------------------------------------------------------------

    def enter(
        self,
        tenant: str = "",
        begun: float | None = None,
        request_id: str | None = None,
        is_answer: bool = True,
    ) -> EventStream:
        """A place for one more request, which counts as waiting from now on. The caller closes it.

        Raises NotReadyError, OverloadedError or QueueFullError. `begun` is the monotonic time at which
        the request arrived; now, if not given. `request_id` must be unique; a new one, if not given.
        Counts (not `is_answer`) need no slot; their limit is one of their own.
        """
        self.check_ready()
        facts = self._supervisor.status.facts
        name = uuid.uuid4().hex if request_id is None else request_id
        stream = EventStream(name, tenant, self, time.monotonic() if begun is None else begun, is_answer)
        check_admission(stream, self._streams.values(), facts.slots if facts else 1, self._mean_s)
        self._streams[stream.id] = stream
        return stream

    def check_ready(self) -> None:
        """Raise NotReadyError unless requests are taken now."""
        state = self.status.state
        if state != "ready":
            reasons = {"loading": "still loading", "restarting": "starting again after a fault"}
            reason = reasons.get(state, "shutting down")
            raise NotReadyError(f"The model is {reason}. Please try again.", retry_after=self.retry_after)

    async def submit(self, command: Submit, begun: float | None = None) -> EventStream:
        """A request of which all is known at once: it is accepted, under the command's id.

        Raises what `enter` and `EventStream.run` raise.
        """
        stream = self.enter(command.tenant, begun, command.id)
        try:
            await stream.run(command)
        except BaseException:  # cancelled: nobody else would close it
            stream.close()
            raise
        return stream

    def run(self, stream: EventStream, command: Submit | Count) -> None:
        """See `Desk`: send a stream's request as soon as there is a worker for it."""
        if isinstance(command, Submit):
            self._check_length(command)
        stream.frame = ipc.encode([command])  # raises for a text that cannot be sent
        self._dispatch()

    def run_again(self, stream: EventStream) -> None:
        """See `Desk`."""
        if stream.id not in self._streams:
            return  # the server has ended it meanwhile
        if stream.tries < MOST_TRIES:
            stream.wanted = True
            self._dispatch()
            return
        del self._streams[stream.id]
        if stream.is_answer:
            self._observer.failed()
        stream.push(EngineError(TWICE_FAILED))

    def forget(self, stream: EventStream) -> None:
        """See `Desk`: a stream was given up, so the worker drops its request."""
        if self._streams.pop(stream.id, None) is None:
            return
        if stream.sent:
            self._supervisor.send(Cancel(stream.id))
        if stream.frame and stream.is_answer:
            self._observer.given_up() if stream.wanted else self._observer.failed()
        self._dispatch()

    def _check_length(self, command: Submit) -> None:
        """Refuse what cannot fit before its tokens are counted, which can take minutes."""
        facts = self._supervisor.status.facts
        if facts is None:
            return
        least = sum(len(segment.text) for segment in command.segments) // facts.longest_piece
        if least >= facts.context:
            raise ContextLengthError(least, facts.context, counted=False)

    def _dispatch(self) -> None:
        """Send what can be sent: everything that is wanted, but one suspect at a time."""
        if self._supervisor.status.state != "ready":
            return
        on_trial = any(stream.suspect and stream.sent for stream in self._streams.values())
        for stream in self._streams.values():
            if stream.sent or not (stream.frame and stream.wanted) or (stream.suspect and on_trial):
                continue
            on_trial |= stream.suspect
            stream.sent = True
            self._supervisor.send_frame(stream.frame)

    # --- what the worker says -----------------------------------------------------------------

    def ready(self) -> None:
        """A new worker takes requests."""
        self._dispatch()

    def receive(self, events: list[RequestEvent]) -> None:
        """Events from the worker, in order; those of forgotten requests are dropped."""
        for event in events:
            stream = self._streams.get(event.id)
            if stream is not None and stream.sent:
                self._deliver(stream, event)

    def _deliver(self, stream: EventStream, event: RequestEvent) -> None:
        match event:
            case TextDelta():
                if not stream.told_text:
                    self._first_text(stream)
                stream.pieces += 1
                self._acquit(stream)
                stream.push(event)
                return
            case Started():
                self._start(stream, event)
                return
            case Accepted():
                stream.accept(event.prompt_tokens)
                self._acquit(stream)
                return
            case Failed():
                self._fault(stream, event.message)
                self._dispatch()  # another suspect may run now
                return
            case Counted():
                stream.accept(event.tokens)
            case Finished():
                self._finish(stream, event)
            case Invalid():
                stream.push(InvalidRequestError(event.message))
            case Refused(prompt_tokens=0):
                stream.push(InvalidRequestError("The prompt has no tokens."))
            case Refused():
                stream.push(ContextLengthError(event.prompt_tokens, event.context))
        del self._streams[stream.id]
        self._acquit(stream, ended=True)

    def _start(self, stream: EventStream, event: Started) -> None:
        stream.has_slot = True
        if not stream.tries:
            self._observer.started(stream.prompt_tokens, event.cached_tokens)
        stream.push(event)

    def _first_text(self, stream: EventStream) -> None:
        stream.told_text = True
        self._observer.first_text(time.monotonic() - stream.begun)

    def _finish(self, stream: EventStream, event: Finished) -> None:
        usage = event.usage
        self._mean_s += 0.1 * ((usage.prompt_ms + usage.predicted_ms) / 1000 - self._mean_s)
        self._observer.finished(event.reason, usage, time.monotonic() - stream.begun)
        stream.push(event)

    def _acquit(self, stream: EventStream, *, ended: bool = False) -> None:
        """Let the next suspect run once this one has come further than last time."""
        if stream.suspect and (ended or not stream.had_slot or stream.pieces > stream.reached):
            stream.suspect = False
            self._dispatch()

    def _fault(self, stream: EventStream, message: str) -> None:
        """A run has failed. Its consumer decides whether there is another one."""
        stream.tries += 1
        stream.had_slot = stream.has_slot
        stream.reached, stream.pieces = stream.pieces, 0
        stream.sent = stream.prepared = stream.has_slot = stream.wanted = False
        stream.push(EngineFault(message))

    def lost(self) -> None:
        """The worker is gone. What it was not working on waits for the next one and knows nothing of it."""
        for stream in self._streams.values():
            if stream.prepared and not stream.has_slot:
                stream.sent = stream.prepared = False
            elif stream.sent:
                stream.suspect = True
                self._fault(stream, WORKER_LOST)
