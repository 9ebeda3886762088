"""Saved states: found by tokens within a tenant, dropped by last use, quick with many."""

from __future__ import annotations

import random
import time

from hypothesis import given
from hypothesis import strategies as st

from mashbox.engine.host_cache import BOOK_BYTES_PER_TOKEN, HostCache
from mashbox.engine.host_memory import HostMemory, Image
from mashbox.engine.prefix_index import PrefixIndex
from mashbox.engine.states import ReuseRules, SavedState, SlotState, Snapshot, as_tokens

GRID = 8
PAGE = 4096


class Cache:
    """A host cache with pages for states; `save` takes one page each."""

    def __init__(self, pages: int, can_trim: bool = True, exact: bool = False) -> None:
        self.memory = HostMemory(pages * PAGE)
        self.rules = ReuseRules(GRID, can_trim, exact)
        self.host = HostCache(self.memory, self.rules)

    def save(
        self,
        tokens: list[int],
        tenant: str = "",
        computed: int | None = None,
        snapshots: tuple[int, ...] = (),
    ) -> SavedState | None:
        images = []
        for length in (len(tokens), *snapshots):
            if (place := self.host.take(1, 1)) is None:
                return None
            images.append(Image(*place, 1, False, length, (0, length - 1)))
        points = tuple(Snapshot(image.length, image) for image in images[1:])
        length = len(tokens) if computed is None else computed
        state = SavedState(as_tokens(tokens), length, points, tenant, images[0])
        self.host.add(state)
        return state

    def used(self, prompt: list[int], tenant: str = "") -> int:
        return self.host.find(as_tokens(prompt), tenant)[1].length


prompts = st.lists(st.integers(0, 1), min_size=1, max_size=60)


@given(st.lists(st.tuples(prompts, st.sampled_from(["", "b"])), max_size=12), prompts)
def test_the_index_finds_what_a_search_through_everything_finds(
    states: list[tuple[list[int], str]], prompt: list[int]
) -> None:
    cache = Cache(100)
    kept = [state for tokens, tenant in states if (state := cache.save(tokens, tenant))]
    for tenant in ("", "b"):
        usable = [
            cache.rules.reusable(state, as_tokens(prompt)).length for state in kept if state.tenant == tenant
        ]
        assert cache.used(prompt, tenant) == max(usable, default=0)


@given(st.lists(prompts, max_size=12), st.lists(st.integers(0, 20), max_size=12))
def test_what_is_removed_leaves_nothing_behind(states: list[list[int]], removals: list[int]) -> None:
    index = PrefixIndex(GRID)
    held = [SavedState(as_tokens(t), len(t), (), "", Image(0, 0, 0, False, 0, (0, 0))) for t in states]
    for state in held:
        index.add(state)
    for number in removals:
        if held:
            index.remove(held.pop(number % len(held)))
        for state in held:
            assert state in [found for _, found in index.find(state.tokens, "")]
    for state in held:
        index.remove(state)
    assert index.empty


def test_one_tenant_never_finds_anothers_state() -> None:
    cache = Cache(4)
    cache.save([1] * 40, "a")
    assert cache.used([1] * 50, "b") == 0
    assert cache.used([1] * 50, "a") == 40


def test_snapshots_are_found_where_prompts_part() -> None:
    cache = Cache(8, can_trim=False)
    cache.save([1] * 16 + [2] * 24, snapshots=(8, 16))
    assert cache.used([1] * 16 + [3] * 9) == 16
    assert cache.used([1] * 9 + [3] * 9) == 8
    assert cache.used([1] * 16 + [2] * 24 + [3]) == 40
    assert cache.used([1] * 16 + [2] * 23 + [3]) == 16


def test_the_least_recently_used_goes_first_and_the_one_to_keep_stays() -> None:
    cache = Cache(3)
    states = [cache.save([number] * 20) for number in range(3)]
    assert states[0] is not None
    cache.host.touch(states[0])
    cache.save([9] * 20)
    assert [cache.used([number] * 30) for number in (0, 1, 2, 9)] == [20, 0, 20, 20]
    assert cache.host.evictions == 1
    assert cache.host.take(3 * PAGE - 1, 0, keep=states[0]) is None
    assert cache.used([0] * 30) == 20


def test_what_can_never_fit_displaces_nothing() -> None:
    cache = Cache(2)
    cache.save([1] * 20)
    assert cache.host.take(3 * PAGE, 0) is None
    assert cache.host.evictions == 0


def test_nothing_is_displaced_for_what_only_fits_beside_the_slots_snapshots() -> None:
    cache = Cache(12)
    assert cache.host.take(5 * PAGE, 0) is not None
    states = [cache.save([number] * 20) for number in range(4)]
    assert states[0] is not None
    states[0].image.holders += 1  # as a slot's snapshot has it
    assert cache.host.take(7 * PAGE, 0) is None
    assert (len(cache.host), cache.host.evictions) == (4, 0)
    assert cache.host.take(6 * PAGE, 0) is not None
    assert cache.host.evictions == 4


def test_the_tokens_count_too() -> None:
    cache = Cache(2)
    assert cache.host.take(PAGE, PAGE // BOOK_BYTES_PER_TOKEN) is not None
    assert cache.memory.used == 2 * PAGE


def test_a_longer_state_stands_for_a_shorter_one() -> None:
    cache = Cache(4)
    cache.save([1] * 20)
    cache.save([1] * 40)
    assert len(cache.host) == 1
    assert cache.memory.used == PAGE
    assert cache.host.covers(SlotState(0, as_tokens([1] * 30)))
    assert not cache.host.covers(SlotState(0, as_tokens([1] * 41)))
    assert not cache.host.covers(SlotState(0, as_tokens([1] * 30 + [2])))


def test_a_state_that_cannot_be_cut_only_stands_for_itself() -> None:
    cache = Cache(4, can_trim=False)
    cache.save([1] * 40)
    assert cache.host.covers(SlotState(0, as_tokens([1] * 40)))
    assert not cache.host.covers(SlotState(0, as_tokens([1] * 32)))


def test_a_thousand_states_of_four_thousand_tokens_are_searched_in_less_than_two_milliseconds() -> None:
    random_tokens = random.Random(1)
    system = [random_tokens.randrange(50_000) for _ in range(2_000)]
    cache = Cache(1_100)
    cache.rules = ReuseRules(64, can_trim=True, exact=False)
    cache.host = HostCache(cache.memory, cache.rules)
    tails = [[random_tokens.randrange(50_000) for _ in range(2_000)] for _ in range(1_000)]
    for tail in tails:
        cache.save(system + tail)
    times = []
    for tail in tails[::10]:
        prompt = as_tokens([*system, *tail[:1_500], 7, 7, 7])
        begun = time.thread_time()
        _, reuse = cache.host.find(prompt, "")
        times.append(time.thread_time() - begun)
        assert reuse.length == 3_500
    assert sorted(times)[len(times) // 2] < 0.002
