"""The states of one backend, in slots and in host memory, and how a slot takes one over."""

from __future__ import annotations

import logging
import mmap
from array import array
from collections.abc import Iterable, Sequence
from functools import partial

from mashbox.engine.backend import Backend
from mashbox.engine.host_cache import HostCache
from mashbox.engine.host_memory import HostMemory, Image
from mashbox.engine.placement import Find, Placement, loses_tail, place
from mashbox.engine.state_store import StateStore
from mashbox.engine.states import (
    NOTHING,
    Reuse,
    ReuseRules,
    SavedState,
    SlotState,
    Snapshot,
    State,
    common_length,
)
from mashbox.engine.types import CacheReport

log = logging.getLogger(__name__)

MAX_SNAPSHOTS = 6
"""Of one slot; the first one, of system prompt and tools, and the newest ones stay."""


class PromptCache:
    """The states of all slots and of host memory, for one backend. Called by the engine's one thread.

    `cap` is in bytes; `namespace` tells the model and its settings from all others.
    """

    def __init__(self, backend: Backend, cap: int, namespace: bytes) -> None:
        facts = backend.facts
        self._backend = backend
        self._rules = ReuseRules(facts.grid, facts.can_trim, facts.exact)
        self.memory = HostMemory(cap)
        self.saved = HostCache(self.memory, self._rules)
        self._store = StateStore(backend, self.memory, namespace)
        self._namespace = namespace
        self.slots = [SlotState(index) for index in range(facts.slots)]

    @property
    def needs_snapshots(self) -> bool:
        """Whether states cannot be cut back to any length."""
        return not self._rules.can_trim

    # --- looking -----------------------------------------------------------------------------

    def known(self, prompt: array[int], tenant: str, free: Sequence[SlotState]) -> int:
        """How many tokens of a prompt some state has now, by the best way; only free slots can be cut."""
        slots = (
            self._rules.reusable(slot, prompt, self._shortest(slot) if slot in free else None)
            for slot in self._slots_of(tenant)
        )
        return max((self.saved.find(prompt, tenant)[1].length, *(reuse.length for reuse in slots)))

    def place(self, prompt: array[int], tenant: str, free: Sequence[SlotState]) -> Placement:
        """Where a prompt runs, and what of which state it uses there. Nothing is changed yet."""
        mine = list(self._slots_of(tenant))
        own = [Find(s, self._rules.reusable(s, prompt, self._shortest(s))) for s in mine if s in free]
        saved, reuse = self.saved.find(prompt, tenant)
        other = [Find(saved, reuse)] if saved else []
        other += [Find(slot, self._rules.reusable(slot, prompt)) for slot in mine]
        slot, find = place(free, own, other, self._rules.grid)
        shared = max((self.saved.shared(prompt, tenant), *(common_length(s.tokens, prompt) for s in mine), 0))
        if find is None or not find.reuse.length:
            return Placement(slot, None, NOTHING, shared)
        return Placement(slot, find.state, find.reuse, shared)

    def _slots_of(self, tenant: str) -> Iterable[SlotState]:
        return (slot for slot in self.slots if slot.tokens and slot.tenant == tenant)

    def _shortest(self, slot: SlotState) -> int:
        return 0 if self._rules.can_trim else self._backend.shortest(slot.index)

    # --- moving ------------------------------------------------------------------------------

    def seat(self, placement: Placement, tenant: str, prompted: int) -> int:
        """Bring the placement's slot into the state it says, for a prompt of `prompted` tokens.

        Returns the tokens that the slot holds then. What cannot be had is computed again: it is 0 then.
        """
        slot, source, reuse = placement.slot, placement.source, placement.reuse
        if source is slot:
            if loses_tail(Find(slot, reuse)):
                self._save(slot)
            self._cut(slot, reuse)
        else:
            self._replace(slot, source, reuse)
        slot.tenant, slot.prompted = tenant, prompted
        return len(slot.tokens)

    def _replace(self, slot: SlotState, source: State | None, reuse: Reuse) -> None:
        if isinstance(source, SavedState):
            self.saved.touch(source)
            self._save(slot, keep=source)
            self.empty(slot)
            self._fill(slot, source, reuse)
            return
        self._save(slot)
        self.empty(slot)
        if source is not None:
            self._copy(slot, source, reuse)

    def _copy(self, slot: SlotState, source: SlotState, reuse: Reuse) -> None:
        """By way of host memory, where the state stays for others; without room there, of a passing one."""
        if (saved := self._save(source)) is not None:
            self._fill(slot, saved, reuse)
            return
        try:
            passing = HostMemory(self._backend.state_size(source.index, False) + mmap.PAGESIZE)
        except OSError as error:
            log.warning("a prompt's state could not be copied: %s", error)
            return
        store = StateStore(self._backend, passing, self._namespace)
        image = store.save(source.index, source.tokens, source.tenant, False, passing.take)
        if image is not None:
            self._fill(slot, self._saved_state(source, image), reuse, store)
            self._store.dropped += store.dropped

    def _fill(
        self, slot: SlotState, saved: SavedState, reuse: Reuse, store: StateStore | None = None
    ) -> None:
        """Restore a whole state into an empty slot and cut it."""
        if not (store or self._store).restore(slot.index, saved.image, saved.tokens, saved.tenant):
            self.empty(slot)
            self.saved.remove(saved)
            return
        slot.tokens, slot.computed, slot.tenant = saved.tokens[:], saved.computed, saved.tenant
        slot.snapshots = list(saved.snapshots)
        for snapshot in slot.snapshots:
            snapshot.image.holders += 1
        self._cut(slot, reuse)

    def _cut(self, slot: SlotState, reuse: Reuse) -> None:
        """Cut a slot back; it is empty when that fails."""
        length, snapshot = reuse.length, reuse.snapshot
        if snapshot and not self._store.restore(slot.index, snapshot.image, slot.tokens, slot.tenant):
            self.empty(slot)
            self._drop(snapshot.image)
            return
        if not self._backend.trim(slot.index, length) or self._backend.positions(slot.index)[1] != length - 1:
            self.empty(slot)
            return
        del slot.tokens[length:]
        slot.computed = min(slot.computed, length)
        while slot.snapshots and slot.snapshots[-1].length > length:
            self.memory.release(slot.snapshots.pop().image)

    def _drop(self, image: Image) -> None:
        """Forget a bad snapshot wherever it is held, or its state would stand in a sound one's way."""
        self.saved.drop(image)
        for slot in self.slots:
            for snapshot in [snapshot for snapshot in slot.snapshots if snapshot.image is image]:
                slot.snapshots.remove(snapshot)
                self.memory.release(image)

    def empty(self, slot: SlotState) -> None:
        """Forget all that a slot holds."""
        self._backend.trim(slot.index, 0)
        del slot.tokens[:]
        slot.computed = 0
        while slot.snapshots:
            self.memory.release(slot.snapshots.pop().image)

    # --- saving ------------------------------------------------------------------------------

    def _save(self, slot: SlotState, keep: SavedState | None = None) -> SavedState | None:
        """Keep a slot's state in host memory, if it is worth it and there is room; `keep` stays there."""
        if len(slot.tokens) < self._rules.grid or not self.memory.cap or self.saved.covers(slot):
            return None
        take = partial(self.saved.take, tokens=len(slot.tokens), keep=keep)
        image = self._store.save(slot.index, slot.tokens, slot.tenant, False, take)
        if image is None:
            return None
        state = self._saved_state(slot, image)
        for snapshot in state.snapshots:
            snapshot.image.holders += 1
        self.saved.add(state, keep)
        return state

    @staticmethod
    def _saved_state(slot: SlotState, image: Image) -> SavedState:
        return SavedState(slot.tokens[:], slot.computed, tuple(slot.snapshots), slot.tenant, image)

    def save_idle(self, free: Iterable[SlotState]) -> bool:
        """Save the state of one slot that nobody uses; False when there is nothing left to save.

        Each is offered once, the newest last: where room is short they would push each other out for ever.
        """
        for slot in sorted(free, key=lambda slot: slot.last_used):
            if slot.offered < slot.last_used:
                slot.offered = slot.last_used
                if self._save(slot):
                    return True
        return False

    def snapshot(self, slot: SlotState) -> None:
        """Take a snapshot of a slot as it is now, if there is room."""
        if any(snapshot.length == len(slot.tokens) for snapshot in slot.snapshots):
            return
        take = partial(self.saved.take, tokens=0)
        image = self._store.save(slot.index, slot.tokens, slot.tenant, True, take)
        if image is None:
            return
        slot.snapshots.append(Snapshot(len(slot.tokens), image))
        if len(slot.snapshots) > MAX_SNAPSHOTS:
            self.memory.release(slot.snapshots.pop(1).image)

    def report(self) -> CacheReport:
        """What host memory holds now."""
        host = sum(image.room for image in self.saved.images())
        return CacheReport(
            states=len(self.saved),
            host_bytes=host,
            snapshot_bytes=self.memory.used - host,
            evictions=self.saved.evictions,
            dropped=self._store.dropped,
        )
