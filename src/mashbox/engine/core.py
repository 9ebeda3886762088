"""The engine's loop: plan, decode, sample, prefill, publish.

One thread calls it. Every request that came in leaves with exactly one `Finished` or `Failed`,
unless it was cancelled: then nothing more is said about it.
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from mashbox.engine.backend import Backend, Logits
from mashbox.engine.placement import Placement
from mashbox.engine.prompt_cache import PromptCache
from mashbox.engine.sampling import Sampler
from mashbox.engine.scheduler import Chunk, Scheduler, Seat
from mashbox.engine.steering import Steering
from mashbox.engine.thinking import AnswerText, Part
from mashbox.engine.types import (
    EMPTY_CACHE,
    CacheReport,
    Failed,
    Finished,
    FinishReason,
    RequestEvent,
    Started,
    TextDelta,
    Usage,
)

log = logging.getLogger(__name__)

PREFILL_BUDGET_S = 0.1
"""Prefill time a step may take: running requests and cancellations wait for it. One chunk is always done."""

Clock = Callable[[], float]
Publish = Callable[[list[RequestEvent | CacheReport]], None]
Announce = Callable[[Started], None]


@dataclass(slots=True, eq=False)
class Generation:
    """A request inside the engine: its prompt, and how its answer grows."""

    id: str
    prompt: array[int]
    limit: int
    """Most new tokens: what the request and the context allow, at least 1."""
    sampler: Sampler
    text: AnswerText
    arrived: float
    steering: Steering | None = None
    literals: Mapping[int, bytes] = field(default_factory=dict)
    """Control tokens that are text for this request."""
    tenant: str = ""
    branches: tuple[int, ...] = ()
    """Lengths, in tokens, up to which other prompts may be the same: multiples of the grid, ascending."""
    started: float = 0.0
    first_token: float = 0.0
    last_token: float = 0.0
    reused: int = 0
    generated: int = 0
    thought: int = 0
    """Tokens generated inside a thinking block, closers included."""
    next_token: int = -1
    """The newest token, sampled but not yet fed to the model."""

    def usage(self) -> Usage:
        """Counts and times so far."""
        return Usage(
            prompt_tokens=len(self.prompt),
            cached_tokens=self.reused,
            completion_tokens=self.generated,
            queue_ms=(self.started - self.arrived) * 1e3,
            prompt_ms=(self.first_token - self.started) * 1e3,
            predicted_ms=(self.last_token - self.first_token) * 1e3,
            reasoning_tokens=self.thought,
        )

    def pick(self, logits: Logits) -> int:
        """The next token, counted."""
        thinking = self.text.thinking
        if self.steering is None:
            token = self.sampler.pick(logits)
        else:
            token = self.steering.pick(self.sampler, logits, thinking, self.thought, self.text.in_mark)
        self.generated += 1
        self.thought += thinking
        self.next_token = token
        return token

    def ending(self) -> FinishReason | None:
        """Why the request ends after the newest token, if it does."""
        if self.text.stop is not None:
            return FinishReason.STOP_STRING
        if self.steering is not None and self.steering.complete:
            return FinishReason.STOP
        return FinishReason.LENGTH if self.generated >= self.limit else None


class Core:
    """Runs requests on a backend, all together, one step at a time."""

    def __init__(
        self,
        backend: Backend,
        cache: PromptCache,
        publish: Publish,
        clock: Clock,
        announce: Announce | None = None,
    ) -> None:
        """`announce` tells at once, before the model works on it, that a request has a slot."""
        self._backend = backend
        self._cache = cache
        self._publish = publish
        self._announce = announce or (lambda started: publish([started]))
        self._clock = clock
        facts = backend.facts
        self._scheduler: Scheduler[Generation] = Scheduler(cache, facts.grid, facts.widest, facts.exact)
        self._most_rows = facts.decode_rows or facts.slots
        self._events: list[RequestEvent | CacheReport] = []
        self._reported = EMPTY_CACHE
        self._token_s = 0.0
        self.steps = 0
        self.kv_tokens = 0
        """Tokens that the requests in slots held after the last step."""

    @property
    def running(self) -> int:
        """Requests that hold a slot."""
        return self._scheduler.seated

    @property
    def waiting(self) -> int:
        """Requests that wait for a slot."""
        return self._scheduler.waiting

    @property
    def idle(self) -> bool:
        """Nothing to do."""
        return self._scheduler.idle

    def submit(self, generation: Generation) -> None:
        """A new request, tokenised and known to fit."""
        self._scheduler.enqueue(generation)

    def cancel(self, request_id: str) -> None:
        """Forget a request wherever it is; unknown ids have just ended."""
        if self._scheduler.drop_waiting(request_id):
            return
        seat = self._scheduler.find(request_id)
        if seat is not None:
            self._scheduler.release(seat)

    def step(self) -> None:
        """Every running request gets its next token; then prefill takes its share of the time."""
        admitted = self._admit()
        self._decode()
        self._flush()
        if admitted:
            self._prefill()
        self._flush()
        self.kv_tokens = self._scheduler.held_tokens
        self.steps += 1

    def rest(self) -> bool:
        """Use an idle moment: save the state of one slot. False: there is nothing left to do."""
        saved = self._cache.save_idle(self._scheduler.free)
        self._report()
        self._flush()
        return saved

    def _admit(self) -> bool:
        """Seat who can be; False: moving states took its share of the time, and someone may be left.

        Nobody prefills then: a state that others wait to take over must not go on without them.
        """
        begun = self._clock()
        while (admitted := self._scheduler.admit()) is not None:
            self._seat(*admitted)
            if self._clock() - begun > PREFILL_BUDGET_S:
                return not (self._scheduler.waiting and self._scheduler.free)
        return True

    def _seat(self, seat: Seat[Generation], placement: Placement) -> None:
        job = seat.job
        try:
            job.reused = self._cache.seat(placement, job.tenant, len(job.prompt))
        except Exception as error:
            self._fail([seat], error)
            return
        self._scheduler.stop(seat, self._stops(job, placement))
        job.started = self._clock()
        log.debug(
            "%s: %d of %d prompt tokens are cached; the nearest state differs from token %d on",
            *(job.id, job.reused, len(job.prompt), placement.shared),
        )
        self._report()
        self._announce(Started(job.id, job.reused))

    def _stops(self, job: Generation, placement: Placement) -> list[int]:
        """Where other prompts are likely to part from this one, or one already did."""
        grid = self._backend.facts.grid
        seen = (placement.shared, len(job.prompt) - 1)
        return [*job.branches, *(length // grid * grid for length in seen)]

    def _report(self) -> None:
        report = self._cache.report()
        if report != self._reported:
            self._reported = report
            self._events.append(report)

    def _decode(self) -> None:
        seats = list(self._scheduler.running)
        for start in range(0, len(seats), self._most_rows):
            self._decode_together(seats[start : start + self._most_rows])

    def _decode_together(self, seats: list[Seat[Generation]]) -> None:
        slots = [seat.slot.index for seat in seats]
        positions = [len(seat.slot.tokens) for seat in seats]
        tokens = [seat.job.next_token for seat in seats]
        try:
            rows = self._backend.decode(slots, positions, tokens)
        except Exception as error:
            self._fail(seats, error)
            return
        now = self._clock()
        for seat, logits in zip(seats, rows, strict=True):
            seat.slot.tokens.append(seat.job.next_token)
            self._advance(seat, logits, now)

    def _prefill(self) -> None:
        begun = self._clock()
        spent = 0.0
        while (chunk := self._scheduler.next_chunk()) is not None:
            # A chunk that would overrun the budget waits for the next step, but one always runs.
            if spent and spent + self._token_s * len(chunk.tokens) > PREFILL_BUDGET_S:
                return
            self._run_chunk(chunk)
            if chunk.stop:
                return  # those who wait for this much can take it over now
            elapsed = self._clock() - begun
            self._token_s = (elapsed - spent) / len(chunk.tokens)
            spent = elapsed

    def _run_chunk(self, chunk: Chunk[Generation]) -> None:
        slot = chunk.seat.slot.index
        try:
            logits = self._backend.prefill(slot, chunk.start, chunk.tokens, chunk.last)
        except Exception as error:
            self._fail([chunk.seat], error)
            return
        self._scheduler.prefilled(chunk)
        if chunk.stop and not self._snapshot(chunk.seat):
            return
        if logits is not None:
            now = self._clock()
            chunk.seat.job.first_token = now
            self._advance(chunk.seat, logits, now)

    def _snapshot(self, seat: Seat[Generation]) -> bool:
        """False: it went wrong, and the request with it."""
        try:
            self._cache.snapshot(seat.slot)
        except Exception as error:
            self._fail([seat], error)
            return False
        self._report()
        return True

    def _advance(self, seat: Seat[Generation], logits: Logits, now: float) -> None:
        """Sample a request's next token and say what became of it."""
        job = seat.job
        try:
            token = job.pick(logits)
            job.last_token = now
            if self._backend.is_end(token):
                self._finish(seat, FinishReason.STOP)
                return
            self._say(job, job.text.feed(job.literals.get(token) or self._backend.piece(token)))
            if (reason := job.ending()) is not None:
                self._finish(seat, reason)
        except Exception as error:
            self._fail([seat], error)

    def _finish(self, seat: Seat[Generation], reason: FinishReason) -> None:
        job = seat.job
        self._say(job, job.text.flush())
        self._events.append(Finished(job.id, self._reason(job, reason), job.usage(), job.text.stop))
        self._scheduler.release(seat)

    def _say(self, job: Generation, parts: Sequence[Part]) -> None:
        self._events += [TextDelta(job.id, text, thinking) for text, thinking in parts]

    @staticmethod
    def _reason(job: Generation, reason: FinishReason) -> FinishReason:
        # Flushing can complete a stop string: the replacement character is text like any other.
        return FinishReason.STOP_STRING if job.text.stop is not None else reason

    def _fail(self, seats: list[Seat[Generation]], error: Exception) -> None:
        """These requests end; their slots' states are no longer known, so they are emptied."""
        log.error("failed: %s", ", ".join(seat.job.id for seat in seats), exc_info=error)
        for seat in seats:
            self._cache.empty(seat.slot)
            self._events.append(Failed(seat.job.id, "The model failed while it worked on this request."))
            self._scheduler.release(seat)

    def _flush(self) -> None:
        if self._events:
            events, self._events = self._events, []
            self._publish(events)
