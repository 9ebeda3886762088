"""How much of a state a prompt can use: tokens compared, the grid, cuts and snapshots."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mashbox.engine.host_memory import Image
from mashbox.engine.placement import Find, place
from mashbox.engine.states import (
    Reuse,
    ReuseRules,
    SavedState,
    SlotState,
    Snapshot,
    as_tokens,
    common_length,
)

GRID = 8
IMAGE = Image(0, 0, 0, False, 0, (0, 0))


def state(
    tokens: range | list[int], computed: int | None = None, snapshots: tuple[int, ...] = ()
) -> SlotState:
    return SlotState(
        0,
        as_tokens(tokens),
        len(tokens) if computed is None else computed,
        [Snapshot(length, IMAGE) for length in snapshots],
    )


@given(st.lists(st.integers(0, 2), max_size=40), st.lists(st.integers(0, 2), max_size=40), st.integers(0, 40))
def test_the_common_length_is_exact(left: list[int], right: list[int], shared: int) -> None:
    right = left[:shared] + right
    length = common_length(as_tokens(left), as_tokens(right))
    assert left[:length] == right[:length]
    assert left[: length + 1] != right[: length + 1] or length == min(len(left), len(right))


def test_bytes_are_taken_for_token_ids_not_for_memory() -> None:
    assert as_tokens(b"\1\0\0\0").tolist() == [1, 0, 0, 0]


CASES = [
    # (state's tokens, computed, snapshots, prompt's length, can trim, exact, shortest) -> tokens used
    ("all that is the same is used", 30, 30, (), 40, True, False, None, 30),
    ("what was decoded is used to its end", 30, 20, (), 40, True, False, None, 30),
    ("the last token is always computed", 30, 20, (), 30, True, False, None, 29),
    ("exact: only what was prefilled", 30, 20, (), 40, True, True, None, 16),
    ("exact: all of it on the grid", 32, 32, (), 40, True, True, None, 32),
    ("a state that cannot be cut is used whole", 30, 30, (), 40, False, False, None, 30),
    ("a state that cannot be cut is too long", 30, 30, (), 30, False, False, None, 0),
    ("the longest snapshot that fits", 30, 30, (8, 16, 24), 20, False, False, None, 16),
    ("no snapshot is short enough", 30, 30, (24,), 20, False, False, None, 0),
    ("a window that still holds enough is cut", 30, 30, (8,), 28, False, False, 20, 27),
    ("a window that has forgotten too much is not", 30, 30, (8,), 28, False, False, 28, 8),
    ("exact: decoded tokens of a state that cannot be cut", 30, 20, (16,), 40, False, True, None, 16),
    ("exact: a state that ends on the grid is used whole", 24, 24, (), 40, False, True, None, 24),
]


@pytest.mark.parametrize(
    ("length", "computed", "snapshots", "prompt", "can_trim", "exact", "shortest", "used"),
    [case[1:] for case in CASES],
    ids=[case[0] for case in CASES],
)
def test_what_can_be_used(
    length: int,
    computed: int,
    snapshots: tuple[int, ...],
    prompt: int,
    can_trim: bool,
    exact: bool,
    shortest: int | None,
    used: int,
) -> None:
    rules = ReuseRules(GRID, can_trim, exact)
    found = rules.reusable(state(range(length), computed, snapshots), as_tokens(range(prompt)), shortest)
    assert found.length == used
    assert (found.snapshot is not None) == (used in snapshots)


def slot(index: int, tokens: int, last_used: int) -> SlotState:
    return SlotState(index, as_tokens(range(tokens)), tokens, prompted=tokens, last_used=last_used)


def saved(tokens: int) -> SavedState:
    return SavedState(as_tokens(range(tokens)), tokens, (), "", IMAGE)


def test_in_place_wins_unless_a_copy_saves_a_block_more() -> None:
    mine, free = slot(0, 100, 1), slot(1, 0, 2)
    host = saved(200)
    assert place([mine, free], [Find(mine, Reuse(96))], [Find(host, Reuse(100))], GRID)[0] is mine
    placed, find = place([mine, free], [Find(mine, Reuse(96))], [Find(host, Reuse(104))], GRID)
    assert (placed, find) == (free, Find(host, Reuse(104)))


def test_a_state_that_would_lose_its_tail_is_copied_while_another_slot_is_free() -> None:
    mine, other = slot(0, 100, 1), slot(1, 50, 2)
    finds = [Find(mine, Reuse(64))]
    placed, find = place([mine, other], finds, finds, GRID)
    assert (placed, find) == (mine, finds[0])  # it was used longest ago, so it would be displaced anyway
    mine.last_used = 3
    assert place([mine, other], finds, finds, GRID)[0] is other
    assert place([mine], finds, finds, GRID)[0] is mine


def test_a_copy_of_much_for_little_is_not_worth_it() -> None:
    busy, free = slot(0, 1000, 1), slot(1, 0, 0)
    assert place([free], [], [Find(busy, Reuse(24))], GRID) == (free, None)
    assert place([free], [], [Find(busy, Reuse(32))], GRID) == (free, Find(busy, Reuse(32)))


def test_without_a_find_empty_slots_come_first_then_the_one_used_longest_ago() -> None:
    slots = [slot(0, 10, 1), slot(1, 10, 0), slot(2, 0, 9)]
    assert place(slots, [], [], GRID)[0].index == 2
    assert place(slots[:2], [], [], GRID)[0].index == 1


def test_an_answer_is_no_loss_but_what_was_read_is() -> None:
    """The next turn may show the answer in another form, without its thinking for example."""
    mine, free = slot(0, 2000, 2), slot(1, 0, 1)
    mine.prompted = 1200
    finds = [Find(mine, Reuse(1200))]
    assert place([mine, free], finds, finds, GRID)[0] is mine
    mine.prompted = 1500
    assert place([mine, free], finds, finds, GRID)[0] is free
