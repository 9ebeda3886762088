"""Which slot a prompt runs in, and how much of the slot's state it can use again.

For now each slot's own state is the cache; sharing between slots and host memory come behind
the same question (`place`). Pure: values in, values out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class SlotState:
    """What one slot's sequence was built from. `tokens` and the library's state always agree."""

    index: int
    tokens: list[int] = field(default_factory=list)
    last_used: int = 0


@dataclass(frozen=True, slots=True)
class Placement:
    """A slot for a prompt, and the tokens of its state that are kept."""

    slot: SlotState
    reused: int


def common_prefix(state: Sequence[int], prompt: Sequence[int], grid: int) -> int:
    """Tokens both begin with, compared one by one, cut down to a multiple of `grid`.

    At least the prompt's last token is left to compute: its logits are needed.
    """
    limit = min(len(state), len(prompt) - 1)
    length = 0
    while length + grid <= limit and state[length : length + grid] == prompt[length : length + grid]:
        length += grid
    return length


def place(prompt: Sequence[int], free: Iterable[SlotState], grid: int) -> Placement:
    """The free slot with the longest usable prefix; the least recently used one among equals.

    A prefix that is less than half of its slot's state is left alone while another slot is free:
    conversations that only begin alike would keep cutting each other short.
    """
    options = [Placement(slot, common_prefix(slot.tokens, prompt, grid)) for slot in free]
    fair = [option for option in options if 2 * option.reused >= len(option.slot.tokens)]
    oldest = min(options, key=lambda option: option.slot.last_used)
    return max([*fair, oldest], key=lambda option: (option.reused, -option.slot.last_used))
