"""Slots, the waiting line, the prefill grid and the rota."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from mashbox.engine.prompt_cache import SlotState, common_prefix, place
from mashbox.engine.scheduler import Scheduler

GRID = 8


@dataclass(eq=False)
class Job:
    id: str
    prompt: list[int]


def admit_all(scheduler: Scheduler[Job]) -> list[str]:
    admitted = []
    while (seated := scheduler.admit()) is not None:
        admitted.append(seated[0].job.id)
    return admitted


@given(st.integers(0, 40), st.integers(0, 40), st.integers(0, 40))
def test_the_common_prefix_is_verified_and_on_the_grid(shared: int, mine: int, theirs: int) -> None:
    state = [1] * shared + [2] * mine
    prompt = [1] * shared + [3] * theirs or [3]
    length = common_prefix(state, prompt, GRID)
    assert length % GRID == 0
    assert length < len(prompt)
    assert state[:length] == prompt[:length]
    limit = min(len(state), len(prompt) - 1)
    after = length + GRID
    assert after > limit or state[:after] != prompt[:after]


def test_a_prompt_goes_to_the_slot_that_knows_most_of_it_else_to_the_least_recently_used() -> None:
    prompt = list(range(40))
    slots = [SlotState(0, [], 5), SlotState(1, prompt[:17], 9), SlotState(2, [], 3)]
    assert (place(prompt, slots, GRID).slot.index, place(prompt, slots, GRID).reused) == (1, 16)
    assert place([7] * 20, slots, GRID).slot.index == 2


@given(st.integers(1, 60), st.integers(0, 60))
def test_chunks_end_at_absolute_multiples_of_the_grid(length: int, known: int) -> None:
    scheduler: Scheduler[Job] = Scheduler(1, GRID, GRID)
    prompt = list(range(length))
    scheduler.enqueue(Job("a", prompt))
    seated = scheduler.admit()
    assert seated is not None
    # A model that cannot cut its state may start anywhere; the grid stays absolute.
    seated[0].slot.tokens.extend(prompt[: min(known, length - 1)])
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


def test_prompts_take_turns_so_a_short_one_is_not_held_up_by_a_long_one() -> None:
    scheduler: Scheduler[Job] = Scheduler(2, GRID, GRID)
    scheduler.enqueue(Job("long", [1] * 10 * GRID))
    scheduler.enqueue(Job("short", [2] * GRID))
    admit_all(scheduler)
    order = []
    while (chunk := scheduler.next_chunk()) is not None:
        order.append(chunk.seat.job.id)
        scheduler.prefilled(chunk)
    assert order[:3] == ["long", "short", "long"]


def test_a_chunk_that_is_put_off_does_not_lose_its_turn() -> None:
    scheduler: Scheduler[Job] = Scheduler(2, GRID, GRID)
    for name in "ab":
        scheduler.enqueue(Job(name, [1] * 10 * GRID))
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
    scheduler: Scheduler[Job] = Scheduler(2, GRID, GRID)
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
    scheduler: Scheduler[Job] = Scheduler(3, GRID, GRID)
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
    scheduler: Scheduler[Job] = Scheduler(3, GRID, GRID)
    for name, length in (("a", 3 * GRID), ("b", GRID), ("c", 2 * GRID)):
        scheduler.enqueue(Job(name, [1] * length))
    admit_all(scheduler)
    while (chunk := scheduler.next_chunk()) is not None:
        scheduler.prefilled(chunk)
    assert [seat.slot.index for seat in scheduler.running] == [0, 1, 2]


@given(st.integers(1, 100), st.integers(0, 60))
def test_wide_calls_end_at_cuts_and_leave_the_last_piece_alone(length: int, known: int) -> None:
    scheduler: Scheduler[Job] = Scheduler(1, GRID, 4 * GRID)
    scheduler.enqueue(Job("a", list(range(length))))
    seated = scheduler.admit()
    assert seated is not None
    seated[0].slot.tokens.extend(range(min(known, length - 1)))
    while (chunk := scheduler.next_chunk()) is not None:
        end = chunk.start + len(chunk.tokens)
        assert len(chunk.tokens) <= 4 * GRID
        assert end % GRID == 0 or chunk.start >= length // GRID * GRID
        assert chunk.last == (end == length)
        scheduler.prefilled(chunk)
    assert seated[0].slot.tokens == list(range(length))


def test_calls_are_narrow_while_something_is_decoded() -> None:
    scheduler: Scheduler[Job] = Scheduler(2, GRID, 4 * GRID)
    scheduler.enqueue(Job("short", [1]))
    scheduler.enqueue(Job("long", [2] * 10 * GRID))
    admit_all(scheduler)
    sizes = []
    while (chunk := scheduler.next_chunk()) is not None:
        sizes.append(len(chunk.tokens))
        scheduler.prefilled(chunk)
    assert sizes == [1] + [GRID] * 10
