"""Which requests hold a slot, and what each step computes. Pure: no clock, no model.

A request waits (first come, first served), holds one slot while it prefills and then runs, and
leaves. Prefill is cut at absolute multiples of `grid` tokens; while nothing is decoded, up to `widest`
tokens between cuts go into one call. The prefilling requests take turns call by call.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Sequence as Tokens
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from mashbox.engine.prompt_cache import Placement, SlotState, place


class Job(Protocol):
    """What the scheduler needs to know of a request."""

    @property
    def id(self) -> str: ...

    @property
    def prompt(self) -> list[int]: ...


J = TypeVar("J", bound=Job)


@dataclass(slots=True, eq=False)
class Seat(Generic[J]):
    """A request in its slot. Invariant: `slot.tokens` is what the slot's state holds."""

    job: J
    slot: SlotState


@dataclass(frozen=True, slots=True)
class Chunk(Generic[J]):
    """One prefill call: `tokens` from position `start`; `last` when the prompt ends with it."""

    seat: Seat[J]
    start: int
    tokens: Tokens[int]
    last: bool


class Scheduler(Generic[J]):
    """Slots, the waiting line, the prefill rota and the running rows."""

    def __init__(self, slots: int, grid: int, widest: int) -> None:
        self._grid = grid
        self._widest = widest
        self._free = [SlotState(index) for index in range(slots)]
        self._waiting: deque[J] = deque()
        self._prefilling: deque[Seat[J]] = deque()
        self._running: list[Seat[J]] = []
        self._uses = 0

    @property
    def running(self) -> list[Seat[J]]:
        """Seats whose prompt is complete, one decode row each, in the order of their slots.

        llama.cpp computes rows together only as far as their slots follow one another.
        """
        return self._running

    @property
    def seated(self) -> int:
        """Requests that hold a slot."""
        return len(self._running) + len(self._prefilling)

    @property
    def waiting(self) -> int:
        """Requests that wait for a slot."""
        return len(self._waiting)

    @property
    def idle(self) -> bool:
        """Nothing to do."""
        return not (self._waiting or self._prefilling or self._running)

    def enqueue(self, job: J) -> None:
        """A new request at the end of the line."""
        self._waiting.append(job)

    def admit(self) -> tuple[Seat[J], Placement] | None:
        """Give the next waiting request a slot, if there is one.

        The caller cuts the slot's state to `placement.reused` tokens; if the library cannot, it
        clears `slot.tokens`.
        """
        if not self._waiting or not self._free:
            return None
        job = self._waiting.popleft()
        placement = place(job.prompt, self._free, self._grid)
        slot = placement.slot
        self._free.remove(slot)
        seat = Seat(job, slot)
        del slot.tokens[placement.reused :]
        self._prefilling.append(seat)
        return seat, placement

    def next_chunk(self) -> Chunk[J] | None:
        """The next prefill call. Asking changes nothing: the turn passes when the chunk is `prefilled`."""
        if not self._prefilling:
            return None
        seat = self._prefilling[0]
        start = len(seat.slot.tokens)
        prompt = seat.job.prompt
        end = self._cut(start, len(prompt))
        return Chunk(seat, start, prompt[start:end], end == len(prompt))

    def _cut(self, start: int, length: int) -> int:
        """Where the call that begins at `start` ends: the next cut, or a later one while nothing is decoded.

        A prompt's last piece, shorter than the grid, always is a call of its own.
        """
        following = (start // self._grid + 1) * self._grid
        if following > length:
            return length
        if self._running:
            return following
        return max(following, min(start + self._widest, length) // self._grid * self._grid)

    def prefilled(self, chunk: Chunk[J]) -> None:
        """The chunk is in the slot's state: it is the next request's turn, after the last one this runs."""
        chunk.seat.slot.tokens.extend(chunk.tokens)
        self._prefilling.remove(chunk.seat)
        if chunk.last:
            insort(self._running, chunk.seat, key=lambda seat: seat.slot.index)
        else:
            self._prefilling.append(chunk.seat)

    def release(self, seat: Seat[J]) -> None:
        """The request has left; its slot keeps its state for a follow-up."""
        if seat in self._running:
            self._running.remove(seat)
        else:
            self._prefilling.remove(seat)
        self._uses += 1
        seat.slot.last_used = self._uses
        self._free.append(seat.slot)

    def drop_waiting(self, job_id: str) -> bool:
        """Take a request out of the line."""
        for job in self._waiting:
            if job.id == job_id:
                self._waiting.remove(job)
                return True
        return False

    def find(self, job_id: str) -> Seat[J] | None:
        """The seat of a request that holds a slot."""
        for seat in (*self._running, *self._prefilling):
            if seat.job.id == job_id:
                return seat
        return None
