"""What a state was built from, and how much of it a prompt can use again. Pure: values in, values out."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from mashbox.engine.host_memory import Image


def as_tokens(ids: Iterable[int]) -> array[int]:
    """Token ids as every state and prompt holds them: compared in one go, four bytes each."""
    return array("i", [*ids])  # bytes as they are would be taken for raw memory


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """The part of a state that cannot be cut back, as it was after `length` tokens."""

    length: int
    image: Image


@dataclass(slots=True, eq=False)
class SlotState:
    """What one slot's sequence was built from. `tokens` and the library's state always agree.

    The first `computed` tokens were prefilled, cut on the grid only: their state is the same to the bit
    whenever it is computed. Snapshots are in the order of their lengths. `last_used` counts the requests
    that had left a slot when this one was left last.
    """

    index: int
    tokens: array[int] = field(default_factory=lambda: array("i"))
    computed: int = 0
    snapshots: list[Snapshot] = field(default_factory=list)
    tenant: str = ""
    prompted: int = 0
    """Tokens of the prompt that ran here last; what follows them is its answer."""
    last_used: int = 0
    offered: int = 0
    """`last_used` of the state that was last offered to host memory in an idle moment."""


@dataclass(slots=True, eq=False)
class SavedState:
    """A whole state in host memory, with the snapshots that its slot had; see `SlotState`."""

    tokens: array[int]
    computed: int
    snapshots: tuple[Snapshot, ...]
    tenant: str
    image: Image

    @property
    def images(self) -> list[Image]:
        """All that it holds, its own image first."""
        return [self.image, *(snapshot.image for snapshot in self.snapshots)]


State = SlotState | SavedState


@dataclass(frozen=True, slots=True)
class Reuse:
    """The first `length` tokens of a state; the snapshot is needed to cut it back to them."""

    length: int
    snapshot: Snapshot | None = None


NOTHING = Reuse(0)


def common_length(left: array[int], right: array[int]) -> int:
    """Tokens both begin with, compared one by one."""
    low, high = 0, min(len(left), len(right))
    if left[:high] == right[:high]:
        return high
    while low < high:
        middle = (low + high + 1) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


@dataclass(frozen=True, slots=True)
class ReuseRules:
    """What holds for one model and mode. See `ModelFacts` for the fields."""

    grid: int
    can_trim: bool
    exact: bool

    def reusable(self, state: State, prompt: array[int], shortest: int | None = None) -> Reuse:
        """How much of a state `prompt` can use; its last token is always left to compute.

        `shortest` is what the state can be cut back to without a snapshot (see `Backend`); by default
        what holds for a copy. In exact mode only what was prefilled is used, on the grid.
        Less than one block is not worth it.
        """
        if shortest is None:
            shortest = 0 if self.can_trim else len(state.tokens)
        limit = min(common_length(state.tokens, prompt), len(prompt) - 1)
        if self.exact:
            limit = self.floor(min(limit, state.computed))
        if limit < self.grid:
            return NOTHING
        if limit >= shortest:
            return Reuse(limit)
        return self._from_snapshot(state.snapshots, limit)

    def floor(self, length: int) -> int:
        """The last multiple of the grid up to a length."""
        return length // self.grid * self.grid

    @staticmethod
    def _from_snapshot(snapshots: Sequence[Snapshot], limit: int) -> Reuse:
        for snapshot in reversed(snapshots):
            if snapshot.length <= limit:
                return Reuse(snapshot.length, snapshot)
        return NOTHING
