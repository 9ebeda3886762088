"""Which requests hold a slot, and what each step computes. Pure: no clock, no model.

A request waits (tenants take turns), holds one slot while it prefills and then runs, and
leaves. Prefill is cut into calls of `grid` tokens, or of up to `widest` while nothing is decoded; with
`on_grid` they begin at absolute multiples of the grid. The prefilling requests take turns call by call.

A request whose prompt begins like one that is being prefilled is held back until that much of it is
computed: then it takes the state over.
"""

from __future__ import annotations

from array import array
from bisect import insort
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from mashbox.engine.fair_line import FairLine
from mashbox.engine.placement import Placement
from mashbox.engine.states import SlotState, common_length


class Job(Protocol):
    """What the scheduler needs to know of a request."""

    @property
    def id(self) -> str: ...

    @property
    def prompt(self) -> array[int]: ...

    @property
    def tenant(self) -> str: ...


class Cache(Protocol):
    """What the scheduler asks the prompt cache."""

    @property
    def slots(self) -> Sequence[SlotState]: ...

    @property
    def needs_snapshots(self) -> bool: ...

    def known(self, prompt: array[int], tenant: str, free: Sequence[SlotState]) -> int: ...

    def place(self, prompt: array[int], tenant: str, free: Sequence[SlotState]) -> Placement: ...


J = TypeVar("J", bound=Job)


@dataclass(slots=True, eq=False)
class Seat(Generic[J]):
    """A request in its slot. Invariant: `slot.tokens` is what the slot's state holds."""

    job: J
    slot: SlotState
    stops: set[int] = field(default_factory=set)
    """Lengths at which prefill pauses for a snapshot."""
    shared: dict[str, int] = field(default_factory=dict)
    """Tokens, on the grid, that this prompt shares with that of a waiting request, by its id."""


@dataclass(slots=True, eq=False)
class Waiter(Generic[J]):
    """A request in the line. `known` is what of its prompt was computed when it came to the front."""

    job: J
    known: int | None = None

    @property
    def tenant(self) -> str:
        """Whose turn it takes."""
        return self.job.tenant


@dataclass(frozen=True, slots=True)
class Chunk(Generic[J]):
    """One prefill call: `tokens` from position `start`; `last` when the prompt ends with it."""

    seat: Seat[J]
    start: int
    tokens: array[int]
    last: bool
    stop: bool
    """A snapshot is to be taken after it."""


class Scheduler(Generic[J]):
    """Slots, the waiting line, the prefill rota and the running rows."""

    def __init__(self, cache: Cache, grid: int, widest: int, on_grid: bool = False) -> None:
        self._cache = cache
        self._grid = grid
        self._widest = widest
        self._on_grid = on_grid
        self._free = list(cache.slots)
        self._waiting: FairLine[Waiter[J]] = FairLine()
        self._prefilling: deque[Seat[J]] = deque()
        self._running: list[Seat[J]] = []
        self._uses = 0

    @property
    def free(self) -> Sequence[SlotState]:
        """Slots that no request holds."""
        return self._free

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
    def held_tokens(self) -> int:
        """Tokens that the requests in slots hold."""
        return sum([len(seat.slot.tokens) for seat in (*self._running, *self._prefilling)])

    @property
    def waiting(self) -> int:
        """Requests that wait for a slot."""
        return len(self._waiting)

    @property
    def idle(self) -> bool:
        """Nothing to do."""
        return not (self._waiting or self._prefilling or self._running)

    def enqueue(self, job: J) -> None:
        """A new request at the end of its tenant's line."""
        self._waiting.add(Waiter(job))

    def admit(self) -> tuple[Seat[J], Placement] | None:
        """Give a slot to the first waiting request that need not be held back, if there is one.

        The caller brings the slot into the state that the placement says before it asks again.
        """
        for waiter in self._waiting if self._free else ():
            if self._held_back(waiter):
                continue
            self._waiting.take(waiter)
            job = waiter.job
            placement = self._cache.place(job.prompt, job.tenant, self._free)
            self._free.remove(placement.slot)
            seat = Seat(job, placement.slot)
            self._prefilling.append(seat)
            return seat, placement
        return None

    def _held_back(self, waiter: Waiter[J]) -> bool:
        """Whether another request is about to compute more of its prompt than is known."""
        reach = max((self._reach(seat, waiter.job) for seat in self._prefilling), default=0)
        if reach and waiter.known is None:
            waiter.known = self._cache.known(waiter.job.prompt, waiter.job.tenant, self._free)
        return reach > (waiter.known or 0)

    def _reach(self, seat: Seat[J], job: J) -> int:
        """How much of the job's prompt will be known that is not yet, when the seat has computed it.

        Where states cannot be cut back, the seat is made to pause there.
        """
        if (shared := seat.shared.get(job.id)) is None:
            same = seat.job.tenant == job.tenant
            shared = min(common_length(seat.job.prompt, job.prompt), len(job.prompt) - 1) if same else 0
            shared = seat.shared[job.id] = shared // self._grid * self._grid
        if shared <= len(seat.slot.tokens):
            return 0
        self.stop(seat, [shared])
        return shared

    def stop(self, seat: Seat[J], lengths: Iterable[int]) -> None:
        """Have prefill pause for snapshots, where states cannot be cut back. Lengths lie on the grid."""
        if self._cache.needs_snapshots:
            seat.stops.update(length for length in lengths if length > len(seat.slot.tokens))

    def next_chunk(self) -> Chunk[J] | None:
        """The next prefill call. Asking changes nothing: the turn passes when the chunk is `prefilled`."""
        if not self._prefilling:
            return None
        seat = self._prefilling[0]
        start = len(seat.slot.tokens)
        prompt = seat.job.prompt
        cut = self._cut_on_grid if self._on_grid else self._cut
        end = min([cut(start, len(prompt)), *(stop for stop in seat.stops if stop > start)])
        return Chunk(seat, start, prompt[start:end], end == len(prompt), end in seat.stops)

    def _cut(self, start: int, length: int) -> int:
        """Where the call that begins at `start` ends: soon while something is decoded, else late.

        No call but a whole prompt is shorter than the grid: such calls are slow, and round otherwise.
        """
        rest = length - start
        if rest < 2 * self._grid or (not self._running and rest <= self._widest):
            return length
        if self._running:
            return start + self._grid
        return start + self._widest - (self._grid if rest - self._widest < self._grid else 0)

    def _cut_on_grid(self, start: int, length: int) -> int:
        """The same for exact mode: cuts are absolute, and a last piece shorter than the grid is a call."""
        following = start + self._grid
        if following > length:
            return length
        if self._running:
            return following
        return max(following, min(start + self._widest, length) // self._grid * self._grid)

    def prefilled(self, chunk: Chunk[J]) -> None:
        """The chunk is in the slot's state: it is the next request's turn, after the last one this runs."""
        slot = chunk.seat.slot
        if slot.computed == chunk.start and not chunk.start % self._grid:
            slot.computed += len(chunk.tokens)
        slot.tokens.extend(chunk.tokens)
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
        for waiter in self._waiting:
            if waiter.job.id == job_id:
                self._waiting.remove(waiter)
                return True
        return False

    def find(self, job_id: str) -> Seat[J] | None:
        """The seat of a request that holds a slot."""
        for seat in (*self._running, *self._prefilling):
            if seat.job.id == job_id:
                return seat
        return None
