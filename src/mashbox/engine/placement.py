"""Which slot a prompt runs in, and which state it takes over. Pure: values in, values out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mashbox.engine.states import Reuse, SlotState, State

WORTH_COPYING = 32
"""A copy costs less than computing a 32nd of its tokens."""
TAIL_SHARE = 4
TAIL_TOKENS = 256
"""A state that would lose more of what was read than a quarter of its tokens, or more than so many, is left
to its conversation, or saved first: computing them again takes longer."""


@dataclass(frozen=True, slots=True)
class Placement:
    """A slot for a prompt, and what of which state it uses: the slot's own, another one's, or none.

    `shared` tokens of some state are like the prompt's, usable or not; no other one has a block more.
    """

    slot: SlotState
    source: State | None
    reuse: Reuse
    shared: int = 0


@dataclass(frozen=True, slots=True)
class Find:
    """A state of which a prompt can use something."""

    state: State
    reuse: Reuse


def place(
    free: Sequence[SlotState], own: Sequence[Find], other: Sequence[Find], grid: int
) -> tuple[SlotState, Find | None]:
    """The slot to run in, and what to use there.

    `own` are finds in free slots, `other` in host memory first and then in all slots. In place costs
    nothing, so it wins unless a copy saves a block more; it must not cost another conversation its tail
    while another slot is free. Without a find it is the slot that was used longest ago.
    """
    worth = [find for find in other if find.reuse.length * WORTH_COPYING >= len(find.state.tokens)]
    copy = max(worth, key=lambda find: find.reuse.length, default=None)
    fair = [find for find in own if not loses_tail(find) or len(free) == 1]
    here = max(fair, key=lambda find: (find.reuse.length, _age(find)), default=None)
    most = copy.reuse.length if copy else 0
    if here and here.reuse.length and here.reuse.length + grid > most:
        assert isinstance(here.state, SlotState)
        return here.state, here
    oldest = min(free, key=lambda slot: (bool(slot.tokens), slot.last_used))
    if copy is None or copy.state is not oldest:
        return oldest, copy
    return oldest, Find(oldest, copy.reuse)


def loses_tail(find: Find) -> bool:
    """Whether a state that is cut to what is used of it would be missed."""
    state = find.state
    # An answer that its own conversation shows in another form, or asks for again, is no loss.
    read = min(state.prompted, len(state.tokens)) if isinstance(state, SlotState) else len(state.tokens)
    lost = read - find.reuse.length
    return lost > TAIL_TOKENS or lost * TAIL_SHARE > len(state.tokens)


def _age(find: Find) -> int:
    return find.state.last_used if isinstance(find.state, SlotState) else 0
