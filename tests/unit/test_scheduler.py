"""Slots, the waiting line, the prefill grid and the rota."""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from mashbox.engine.placement import Find, Placement, place
from mashbox.engine.scheduler import Scheduler
from mashbox.engine.states import NOTHING, ReuseRules, SlotState, as_tokens

GRID = 8


@dataclass(eq=False)
class Job:
    id: str
    prompt: array[int]
    tenant: str = ""

    def __init__(self, name: str, prompt: Iterable[int], tenant: str = "") -> None:
        self.id, self.prompt, self.tenant = name, as_tokens(prompt), tenant


class Slots:
    """A prompt cache of slots only, without a backend."""

    def __init__(self, slots: int, can_trim: bool = True) -> None:
        self.slots = [SlotState(index) for index in range(slots)]
        self.needs_snapshots = not can_trim
        self._rules = ReuseRules(GRID, can_trim, exact=False)

    def known(self, prompt: array[int], tenant: str, free: Sequence[SlotState]) -> int:
        return max(self._rules.reusable(slot, prompt).length for slot in self.slots)

    def place(self, prompt: array[int], tenant: str, free: Sequence[SlotState]) -> Placement:
        finds = [Find(slot, self._rules.reusable(slot, prompt)) for slot in self.slots if slot.tokens]
        slot, find = place(free, [find for find in finds if find.state in free], finds, GRID)
        return Placement(slot, find.state if find else None, find.reuse if find else NOTHING)


def scheduler_of(
    slots: int, widest: int = GRID, can_trim: bool = True, on_grid: bool = False
) -> Scheduler[Job]:
    return Scheduler(Slots(slots, can_trim), GRID, widest, on_grid)


def seat_next(scheduler: Scheduler[Job]) -> str | None:
    """Admit one request and bring its slot into the state that its placement says."""
    if (admitted := scheduler.admit()) is None:
        return None
    seat, placement = admitted
    tokens = placement.source.tokens[: placement.reuse.length] if placement.source else as_tokens([])
    seat.slot.computed = min(placement.source.computed, len(tokens)) if placement.source else 0
    seat.slot.tokens = tokens
    return seat.job.id


def know(slot: SlotState, tokens: Iterable[int]) -> None:
    """A slot whose first tokens were prefilled before."""
    slot.tokens.extend(tokens)
    slot.computed = len(slot.tokens)


def admit_all(scheduler: Scheduler[Job]) -> list[str]:
    return list(iter(lambda: seat_next(scheduler) or "", ""))


@given(st.integers(1, 60), st.integers(0, 7))
def test_exact_chunks_end_at_absolute_multiples_of_the_grid(length: int, known: int) -> None:
    scheduler = scheduler_of(1, on_grid=True)
    prompt = list(range(length))
    scheduler.enqueue(Job("a", prompt))
    seated = scheduler.admit()
    assert seated is not None
    know(seated[0].slot, prompt[: min(known, (length - 1) // GRID) * GRID])
    cuts, tokens, last = [], list(seated[0].slot.tokens), False
    while (chunk := scheduler.next_chunk()) is not None:
        assert not last
        assert chunk.start == len(tokens)
        tokens += chunk.tokens
        cuts.append(len(tokens))
        last = chunk.last
        scheduler.prefilled(chunk)
    assert tokens == prompt
    assert last
    assert all(cut % GRID == 0 for cut in cuts[:-1])
    assert all(b - a <= GRID for a, b in itertools.pairwise(cuts))
    assert [seat.job.id for seat in scheduler.running] == ["a"]


@given(st.integers(1, 100), st.integers(0, 60), st.booleans())
def test_no_call_is_shorter_than_the_grid_but_a_whole_rest(length: int, known: int, busy: bool) -> None:
    scheduler = scheduler_of(2, 4 * GRID)
    if busy:
        scheduler.enqueue(Job("running", [0]))
        admit_all(scheduler)
        prefill(scheduler, 1)
    scheduler.enqueue(Job("a", range(1, 1 + length)))
    seated = scheduler.admit()
    assert seated is not None
    slot, rest = seated[0].slot, length - min(known, length - 1)
    know(slot, range(1, 1 + length - rest))
    sizes = []
    while (chunk := scheduler.next_chunk()) is not None:
        sizes.append(len(chunk.tokens))
        assert chunk.last == (sum(sizes) == rest)
        scheduler.prefilled(chunk)
    assert slot.tokens.tolist() == list(range(1, 1 + length))
    assert sizes == [rest] or min(sizes) >= GRID
    assert max(sizes) <= max(2 * GRID - 1, GRID if busy else 4 * GRID)


def test_prompts_take_turns_so_a_short_one_is_not_held_up_by_a_long_one() -> None:
    scheduler = scheduler_of(2)
    scheduler.enqueue(Job("long", [1] * 10 * GRID))
    scheduler.enqueue(Job("short", [2] * GRID))
    admit_all(scheduler)
    order = []
    while (chunk := scheduler.next_chunk()) is not None:
        order.append(chunk.seat.job.id)
        scheduler.prefilled(chunk)
    assert order[:3] == ["long", "short", "long"]


def test_a_chunk_that_is_put_off_does_not_lose_its_turn() -> None:
    scheduler = scheduler_of(2)
    for number, name in enumerate("ab"):
        scheduler.enqueue(Job(name, [number] * 10 * GRID))
    admit_all(scheduler)
    order = []
    for _ in range(4):  # steps with time for one chunk: the second one is looked at and left
        chunk = scheduler.next_chunk()
        assert chunk is not None
        order.append(chunk.seat.job.id)
        scheduler.prefilled(chunk)
        scheduler.next_chunk()
    assert order == ["a", "b", "a", "b"]


def test_the_line_is_first_come_first_served_and_slots_are_never_lost() -> None:
    scheduler = scheduler_of(2)
    for name in "abcd":
        scheduler.enqueue(Job(name, [1] * 3))
    assert admit_all(scheduler) == ["a", "b"]
    assert scheduler.waiting == 2
    assert scheduler.drop_waiting("c")
    assert not scheduler.drop_waiting("a")
    seat = scheduler.find("a")
    assert seat is not None
    scheduler.release(seat)
    assert admit_all(scheduler) == ["d"]
    assert scheduler.find("c") is None


@given(st.lists(st.sampled_from(["enqueue", "admit", "chunk", "release", "drop"]), max_size=60))
def test_any_course_of_events_keeps_every_slot_and_every_request_once(course: list[str]) -> None:
    scheduler = scheduler_of(3)
    made: list[str] = []
    gone: set[str] = set()
    for number, event in enumerate(course):
        if event == "enqueue":
            made.append(str(number))
            scheduler.enqueue(Job(str(number), [number] * (1 + number % 20)))
        elif event == "admit":
            admit_all(scheduler)
        elif event == "chunk" and (chunk := scheduler.next_chunk()) is not None:
            scheduler.prefilled(chunk)
        elif event == "release":
            seats = [seat for name in made if (seat := scheduler.find(name)) is not None]
            if seats:
                gone.add(seats[0].job.id)
                scheduler.release(seats[0])
        elif event == "drop" and made and scheduler.drop_waiting(made[-1]):
            gone.add(made[-1])
        assert scheduler.seated + scheduler.waiting + len(gone) == len(made)
        assert scheduler.seated <= 3
    admit_all(scheduler)
    assert scheduler.waiting == 0 or scheduler.seated == 3


def test_running_rows_stand_in_the_order_of_their_slots() -> None:
    scheduler = scheduler_of(3)
    for number, (name, length) in enumerate((("a", 3 * GRID), ("b", GRID), ("c", 2 * GRID))):
        scheduler.enqueue(Job(name, [number] * length))
    admit_all(scheduler)
    while (chunk := scheduler.next_chunk()) is not None:
        scheduler.prefilled(chunk)
    assert [seat.slot.index for seat in scheduler.running] == [0, 1, 2]


@given(st.integers(1, 100), st.integers(0, 7))
def test_exact_wide_calls_end_at_cuts_and_leave_the_last_piece_alone(length: int, known: int) -> None:
    scheduler = scheduler_of(1, 4 * GRID, on_grid=True)
    scheduler.enqueue(Job("a", list(range(length))))
    seated = scheduler.admit()
    assert seated is not None
    know(seated[0].slot, range(min(known, (length - 1) // GRID) * GRID))
    while (chunk := scheduler.next_chunk()) is not None:
        end = chunk.start + len(chunk.tokens)
        assert len(chunk.tokens) <= 4 * GRID
        assert end % GRID == 0 or chunk.start >= length // GRID * GRID
        assert chunk.last == (end == length)
        scheduler.prefilled(chunk)
    assert seated[0].slot.tokens.tolist() == list(range(length))
    assert seated[0].slot.computed == length


def test_calls_are_narrow_while_something_is_decoded() -> None:
    scheduler = scheduler_of(2, 4 * GRID)
    scheduler.enqueue(Job("short", [1]))
    scheduler.enqueue(Job("long", [2] * 10 * GRID))
    admit_all(scheduler)
    sizes = []
    while (chunk := scheduler.next_chunk()) is not None:
        sizes.append(len(chunk.tokens))
        scheduler.prefilled(chunk)
    assert sizes == [1] + [GRID] * 10


def prefill(scheduler: Scheduler[Job], calls: int) -> list[str]:
    """Whose prompts so many calls work on."""
    names = []
    for _ in range(calls):
        if (chunk := scheduler.next_chunk()) is None:
            break
        scheduler.prefilled(chunk)
        names.append(chunk.seat.job.id)
    return names


def test_requests_that_begin_alike_compute_it_once() -> None:
    scheduler = scheduler_of(3)
    for number, name in enumerate("abc"):
        scheduler.enqueue(Job(name, [*range(2 * GRID), *[100 + number] * GRID]))
    assert admit_all(scheduler) == ["a"]
    assert prefill(scheduler, 1) == ["a"]
    assert admit_all(scheduler) == []
    assert prefill(scheduler, 1) == ["a"]
    assert admit_all(scheduler) == ["b", "c"]
    assert sorted(prefill(scheduler, 9)) == ["a", "b", "c"]


def test_a_request_that_shares_nothing_passes_those_held_back() -> None:
    scheduler = scheduler_of(2)
    for name, prompt in (("a", range(20)), ("b", range(20)), ("c", range(30, 50))):
        scheduler.enqueue(Job(name, prompt))
    assert admit_all(scheduler) == ["a", "c"]


def test_when_the_one_that_computes_leaves_the_next_one_goes_on_from_there() -> None:
    scheduler = scheduler_of(3)
    for name in "abc":
        scheduler.enqueue(Job(name, range(4 * GRID)))
    admit_all(scheduler)
    prefill(scheduler, 2)
    seat = scheduler.find("a")
    assert seat is not None
    scheduler.release(seat)
    assert admit_all(scheduler) == ["b"]
    seat = scheduler.find("b")
    assert seat is not None
    assert len(seat.slot.tokens) == 2 * GRID
    assert scheduler.waiting == 1


def test_tenants_share_nothing() -> None:
    scheduler = scheduler_of(2)
    scheduler.enqueue(Job("a", range(20), "one"))
    scheduler.enqueue(Job("b", range(20), "two"))
    assert admit_all(scheduler) == ["a", "b"]


def test_a_state_that_cannot_be_cut_stops_where_others_will_part_from_it() -> None:
    scheduler = scheduler_of(2, 8 * GRID, can_trim=False)
    scheduler.enqueue(Job("a", range(6 * GRID)))
    scheduler.enqueue(Job("b", [*range(2 * GRID + 3), *[9] * GRID]))
    admit_all(scheduler)
    stops = []
    while (chunk := scheduler.next_chunk()) is not None:
        scheduler.prefilled(chunk)
        stops += [chunk.start + len(chunk.tokens)] if chunk.stop else []
    assert stops == [2 * GRID]
