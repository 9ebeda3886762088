"""The states saved in host memory: found by tokens, the least recently used ones dropped for room."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator

from mashbox.engine.host_memory import HostMemory, Image, Room
from mashbox.engine.prefix_index import PrefixIndex
from mashbox.engine.states import NOTHING, Reuse, ReuseRules, SavedState, SlotState, common_length

CANDIDATES = 32
"""States that a lookup looks into: many may hold the same prefix, and then any of them will do."""
BOOK_BYTES_PER_TOKEN = 24
"""What a state's tokens and its place in the index take, at most, counted with its image."""


class HostCache:
    """Saved states in the order of their last use, oldest first."""

    def __init__(self, memory: HostMemory, rules: ReuseRules) -> None:
        self._memory = memory
        self._rules = rules
        self._states: dict[SavedState, None] = {}
        self._index = PrefixIndex(rules.grid)
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._states)

    def __iter__(self) -> Iterator[SavedState]:
        return iter(self._states)

    def find(self, prompt: array[int], tenant: str) -> tuple[SavedState | None, Reuse]:
        """The saved state of which a prompt can use most."""
        best: tuple[SavedState | None, Reuse] = (None, NOTHING)
        for count, (most, state) in enumerate(self._index.find(prompt, tenant)):
            if count == CANDIDATES or most <= best[1].length:
                break
            reuse = self._rules.reusable(state, prompt)
            if reuse.length > best[1].length:
                best = state, reuse
        return best

    def shared(self, prompt: array[int], tenant: str) -> int:
        """Tokens that a saved state begins with like the prompt, usable or not.

        No other one begins like it for a block more.
        """
        for _, state in self._index.find(prompt, tenant):
            return common_length(state.tokens, prompt)
        return 0

    def covers(self, state: SlotState) -> bool:
        """Whether a saved state can stand for a slot's."""
        length = len(state.tokens)
        # No limit here: a state that is not found would be saved again and again.
        for most, saved in self._index.find(state.tokens, state.tenant):
            if most <= length:
                break
            fits = self._rules.can_trim or len(saved.tokens) == length
            if fits and saved.computed >= state.computed and saved.tokens[:length] == state.tokens:
                return True
        return False

    def take(self, size: int, tokens: int, keep: SavedState | None = None) -> Room | None:
        """Room for an image of `size` bytes and the book of its `tokens`; None when there is none.

        Old states are dropped for it, but for the one to `keep`; none where that would not be enough.
        """
        needed = size + BOOK_BYTES_PER_TOKEN * tokens
        if (room := self._memory.take(needed)) is not None:
            return room
        if not self._memory.would_fit(needed, self._droppable(keep)):
            return None
        while (room := self._memory.take(needed)) is None:
            oldest = next((state for state in self._states if state is not keep), None)
            if oldest is None:
                return None
            self.evictions += 1
            self.remove(oldest)
        return room

    def _droppable(self, keep: SavedState | None) -> list[Image]:
        """What nobody holds but saved states other than the one to keep."""
        held = Counter(image for state in self._states if state is not keep for image in state.images)
        return [image for image, holders in held.items() if holders == image.holders]

    def add(self, state: SavedState, keep: SavedState | None = None) -> None:
        """Keep a new state; shorter ones that it can stand for go, but for the one to `keep`."""
        if self._rules.can_trim:
            for shorter in self._shorter(state):
                if shorter is not keep:
                    self.remove(shorter)
        self._states[state] = None
        self._index.add(state)

    def _shorter(self, state: SavedState) -> list[SavedState]:
        found = [other for _, other in self._index.find(state.tokens, state.tenant)]
        return [
            other
            for other in dict.fromkeys(found)
            if other.computed <= state.computed and other.tokens == state.tokens[: len(other.tokens)]
        ]

    def touch(self, state: SavedState) -> None:
        """It was used now."""
        if state in self._states:
            del self._states[state]
            self._states[state] = None

    def remove(self, state: SavedState) -> None:
        """Forget a state; nothing happens when it is gone already."""
        if state in self._states:
            del self._states[state]
            self._index.remove(state)
            for image in state.images:
                self._memory.release(image)

    def drop(self, image: Image) -> None:
        """Forget all states that hold an image."""
        for state in [state for state in self._states if image in state.images]:
            self.remove(state)

    def images(self) -> set[Image]:
        """All that saved states hold."""
        return {image for state in self._states for image in state.images}
