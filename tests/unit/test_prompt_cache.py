"""Sharing, saving and restoring under the real loop, on a backend whose states are its tokens."""

from __future__ import annotations

import random
from array import array
from collections.abc import Sequence
from itertools import count

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mashbox.config import ModelConfig
from mashbox.engine.backend import Logits
from mashbox.engine.core import Core, Generation
from mashbox.engine.host_memory import Image
from mashbox.engine.prompt_cache import MAX_SNAPSHOTS, PromptCache
from mashbox.engine.sampling import Sampler
from mashbox.engine.state_store import StateStore
from mashbox.engine.states import as_tokens
from mashbox.engine.thinking import AnswerText
from mashbox.engine.types import (
    CacheReport,
    Failed,
    Finished,
    RequestEvent,
    Sampling,
    Started,
    TextDelta,
    Usage,
)
from tests.scripted import ScriptedBackend

GRID = 64
MIB = 1 << 20


class StatesBackend(ScriptedBackend):
    """Counts what it computes. Without `can_trim` a part of each state is as long as the state or useless."""

    def __init__(self, slots: int, can_trim: bool = True, exact: bool = False) -> None:
        super().__init__(ModelConfig("", context=4096, slots=slots, threads=1), lambda _: None)
        self.facts = msgspec.structs.replace(
            self.facts, can_trim=can_trim, exact=exact, decode_rows=2 if exact else 0
        )
        self.prefilled = 0
        self.saves = self.restores = 0
        self.most_rows = 0
        self.fail_restores = False
        self._rigid = [0] * slots
        """How many tokens the part that cannot be cut has seen."""

    def prefill(self, slot: int, start: int, tokens: Sequence[int], want_logits: bool) -> Logits | None:
        self._check(slot, start)
        self.prefilled += len(tokens)
        self._rigid[slot] += len(tokens)
        return super().prefill(slot, start, tokens, want_logits)

    def decode(
        self, slots: Sequence[int], positions: Sequence[int], tokens: Sequence[int]
    ) -> Sequence[Logits]:
        self.most_rows = max(self.most_rows, len(slots))
        for slot, position in zip(slots, positions, strict=True):
            self._check(slot, position)
            self._rigid[slot] += 1
        return super().decode(slots, positions, tokens)

    def _check(self, slot: int, start: int) -> None:
        assert len(self.held[slot]) == start
        assert self._rigid[slot] == start

    def trim(self, slot: int, length: int) -> bool:
        if not self.facts.can_trim and length not in (0, self._rigid[slot]):
            self.held[slot], self._rigid[slot] = [], 0
            return False
        self._rigid[slot] = length
        return super().trim(slot, length)

    def shortest(self, slot: int) -> int:
        return 0 if self.facts.can_trim else self._rigid[slot]

    def state_size(self, slot: int, partial: bool) -> int:
        return 100 if partial else 100 + super().state_size(slot, partial)

    def save(self, slot: int, partial: bool, into: memoryview) -> None:
        self.saves += 1
        into[:8] = np.int64(self._rigid[slot]).tobytes()
        if not partial:
            super().save(slot, partial, into[100:])

    def restore(self, slot: int, partial: bool, image: memoryview) -> None:
        self.restores += 1
        if self.fail_restores:
            self.held[slot], self._rigid[slot] = [], 0
            raise RuntimeError("scripted refusal")
        if not partial:
            super().restore(slot, partial, image[100:])
        self._rigid[slot] = int(np.frombuffer(image[:8], np.int64)[0])


class Box:
    """A core with its cache, and what it said."""

    def __init__(
        self, slots: int = 3, cap: int = MIB, can_trim: bool = True, exact: bool = False, tick: float = 0.2
    ) -> None:
        self.backend = StatesBackend(slots, can_trim, exact)
        self.cache = PromptCache(self.backend, cap, b"test")
        self.events: list[RequestEvent] = []
        self.reports: list[CacheReport] = []
        ticks = count()
        # Every look at the clock takes longer than the budget: one prefill call a step.
        self.core = Core(self.backend, self.cache, self.take, lambda: next(ticks) * tick)

    def take(self, events: Sequence[RequestEvent | CacheReport]) -> None:
        for event in events:
            if isinstance(event, CacheReport):
                self.reports.append(event)
            else:
                self.events.append(event)

    def submit(
        self, name: str, prompt: str, tenant: str = "", branches: tuple[int, ...] = (), limit: int = 200
    ) -> None:
        tokens = as_tokens(prompt.encode())
        self.core.submit(
            Generation(
                *(name, tokens, limit, Sampler(Sampling(), []), AnswerText(()), 0.0),
                tenant=tenant,
                branches=branches,
            )
        )

    def run(self) -> None:
        for _ in range(10_000):
            if self.core.idle:
                return
            self.step()
        raise AssertionError("the core does not come to an end")

    def step(self) -> None:
        self.core.step()
        self.check()

    def check(self) -> None:
        """What holds after every step."""
        memory = self.cache.memory
        assert memory.used <= memory.cap
        for slot in self.cache.slots:
            assert slot.tokens.tolist() == self.backend.held[slot.index]
            assert slot.computed <= len(slot.tokens)
            assert all(snapshot.length <= len(slot.tokens) for snapshot in slot.snapshots)
            assert len(slot.snapshots) <= MAX_SNAPSHOTS
        held = [snapshot.image for slot in self.cache.slots for snapshot in slot.snapshots]
        assert memory.used == sum(image.room for image in self.cache.saved.images() | set(held))

    def ask(self, name: str, prompt: str, tenant: str = "", branches: tuple[int, ...] = ()) -> Usage:
        """One request alone, to its end; the answer must be the prompt's last line."""
        self.submit(name, prompt, tenant, branches)
        self.run()
        assert self.text(name) == prompt.rpartition("\n")[2][:200]
        return self.usage(name)

    def text(self, name: str) -> str:
        return "".join(
            event.text for event in self.events if isinstance(event, TextDelta) and event.id == name
        )

    def usage(self, name: str) -> Usage:
        ends = [event for event in self.events if isinstance(event, Finished | Failed) and event.id == name]
        assert len(ends) == 1
        assert isinstance(ends[0], Finished), ends
        starts = [event for event in self.events if isinstance(event, Started) and event.id == name]
        assert [start.cached_tokens for start in starts] == [ends[0].usage.cached_tokens]
        return ends[0].usage

    def cached(self, name: str, prompt: str, tenant: str = "") -> int:
        return self.ask(name, prompt, tenant).cached_tokens


def lines(seed: str, tokens: int) -> str:
    """A text of its own, so many bytes, that ends with a line break."""
    letters = random.Random(seed)
    return "".join(letters.choice("abcdefgh") for _ in range(tokens - 1)) + "\n"


@pytest.mark.parametrize("cap", [0, MIB])
@pytest.mark.parametrize("can_trim", [True, False])
def test_requests_that_start_together_compute_their_prefix_once(cap: int, can_trim: bool) -> None:
    box = Box(slots=4, cap=cap, can_trim=can_trim)
    prefix = lines("prefix", 1000)
    for name in "abcd":
        box.submit(name, prefix + f"{name} asks")
    box.run()
    for name in "abcd":
        assert box.text(name) == f"{name} asks"
    assert box.backend.prefilled <= 1006 + 3 * (6 + GRID)


def test_more_requests_than_slots_share_it_too() -> None:
    box = Box(slots=2)
    prefix = lines("prefix", 1000)
    for name in "abcdefgh":
        box.submit(name, prefix + f"{name} asks")
    box.run()
    assert [box.text(name) for name in "abcdefgh"] == [f"{name} asks" for name in "abcdefgh"]
    assert box.backend.prefilled <= 1006 + 7 * (6 + GRID)


def test_a_state_computed_before_is_shared_while_its_slot_is_busy() -> None:
    box = Box(slots=2)
    prefix = lines("prefix", 1000)
    box.submit("a", prefix + "x" * 100)
    for _ in range(100):
        box.step()
        if box.text("a"):
            break
    box.submit("b", prefix + "b asks")
    box.run()
    assert box.usage("b").cached_tokens == 1000
    assert (box.text("a"), box.text("b")) == ("x" * 100, "b asks")


def test_what_only_its_own_slot_could_be_cut_back_to_is_not_known_while_that_is_busy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    box = Box(cap=0, can_trim=False)
    box.submit("a", "p" * 200 + "a" * 100)
    box.run()
    (used,) = [slot for slot in box.cache.slots if slot.tokens]
    monkeypatch.setattr(box.backend, "shortest", lambda slot: 0)
    prompt = as_tokens(b"p" * 200 + b"b" * 100)
    others = [slot for slot in box.cache.slots if slot is not used]
    assert box.cache.known(prompt, "", [used]) == 200
    assert box.cache.known(prompt, "", others) == 0


def test_when_the_one_that_computes_is_cancelled_the_next_one_goes_on_from_there() -> None:
    box = Box(slots=3)
    prefix = lines("prefix", 1000)
    for name in "abc":
        box.submit(name, prefix + f"{name} asks")
    for _ in range(6):
        box.step()
    box.core.cancel("a")
    box.run()
    assert box.backend.prefilled <= 1006 + 2 * (6 + GRID)
    assert (box.text("b"), box.text("c")) == ("b asks", "c asks")


def test_when_the_one_that_computes_fails_the_others_do_not() -> None:
    box = Box(slots=3)
    prefix = lines("prefix", 200)
    for name, line in (("a", "[fail]"), ("b", "b asks"), ("c", "c asks")):
        box.submit(name, prefix + line)
    box.run()
    assert any(isinstance(event, Failed) and event.id == "a" for event in box.events)
    assert (box.text("b"), box.text("c")) == ("b asks", "c asks")


def test_an_aborted_request_leaves_what_it_computed() -> None:
    box = Box(slots=1)
    prompt = lines("long", 1000) + "asks"
    box.submit("a", prompt)
    for _ in range(5):
        box.step()
    box.core.cancel("a")
    assert box.cached("b", prompt) == 5 * GRID


@pytest.mark.parametrize("can_trim", [True, False])
def test_a_second_turn_computes_only_what_is_new(can_trim: bool) -> None:
    box = Box(can_trim=can_trim)
    first = lines("one", 500) + "hello"
    box.ask("a", first)
    # The end mark is no text, so the state's tokens are the first prompt and the answer.
    assert box.cached("b", first + "hello" + "\nmore") == len(first) + 5


@pytest.mark.parametrize("can_trim", [True, False])
@pytest.mark.parametrize("slots", [1, 4])
def test_conversations_with_one_long_system_prompt_keep_what_is_their_own(can_trim: bool, slots: int) -> None:
    box = Box(slots=slots, cap=16 * MIB, can_trim=can_trim)
    system = lines("system", 2560)
    first = {name: system + lines(name, 640) + "hello" for name in "abcdef"}
    for name, prompt in first.items():
        box.ask(name, prompt, branches=(2560, 3200))
    for name, prompt in first.items():
        assert box.cached(f"{name} again", prompt + "hello\nmore") == len(prompt) + 5


@pytest.mark.parametrize("can_trim", [True, False])
@pytest.mark.parametrize("slots", [1, 3])
def test_a_displaced_conversation_comes_back(can_trim: bool, slots: int) -> None:
    box = Box(slots=slots, can_trim=can_trim)
    first = lines("one", 500) + "hello"
    box.ask("a", first)
    for number in range(8):
        box.ask(f"other {number}", lines(f"other {number}", 500) + "hi")
    assert box.cached("b", first + "hello" + "\nmore") == len(first) + 5
    assert box.reports[-1].states == 9 - slots + 1


def test_a_saved_state_is_kept_while_it_is_restored_over_one_that_goes_on_from_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    box = Box(slots=2)
    start = lines("one", 200)
    box.ask("a", start + "hi")
    assert box.core.rest()
    box.ask("b", start + "hihi" + lines("tail", 1000) + "yo")
    box.ask("c", lines("two", 300) + "x")
    holders = []
    restore = StateStore.restore

    def watch(store: StateStore, slot: int, image: Image, tokens: array[int], tenant: str) -> bool:
        holders.append(image.holders)
        return restore(store, slot, image, tokens, tenant)

    monkeypatch.setattr(StateStore, "restore", watch)
    assert box.cached("d", start + "hihi" + "other") == len(start) + 4
    assert holders == [1]


def test_without_host_memory_nothing_is_saved() -> None:
    box = Box(slots=1, cap=0)
    first = lines("one", 500) + "hello"
    box.ask("a", first)
    box.ask("b", lines("two", 500) + "hi")
    assert box.cached("c", first) == 0
    assert box.backend.saves == 0
    assert not box.core.rest()


def test_idle_states_are_saved_once() -> None:
    box = Box(slots=3)
    for name in "ab":
        box.ask(name, lines(name, 200) + "hi")
    assert [box.core.rest() for _ in range(4)] == [True, True, False, False]
    assert box.reports[-1].states == box.backend.saves == 2
    box.ask("c", lines("c", 200) + "hi")
    box.ask("d", lines("d", 200) + "hi")
    assert box.backend.saves == 2  # what is displaced is saved already


@pytest.mark.parametrize("can_trim", [True, False])
def test_idle_states_that_do_not_all_fit_do_not_push_each_other_out_for_ever(can_trim: bool) -> None:
    box = Box(slots=3, cap=5 * 4096, can_trim=can_trim)
    for name in "abc":
        box.submit(name, lines(name, 200) + "hi")
    box.run()
    assert [box.core.rest() for _ in range(4)] == [True, True, True, False]
    assert box.core.rest() is False


def test_nothing_is_dropped_for_a_state_that_would_not_fit_even_then() -> None:
    box = Box(slots=2, cap=20 * 4096, can_trim=False)
    for number in range(4):
        box.ask(f"{number}", lines(f"{number}", 200) + "hi")
    box.ask("large", lines("large", 2800) + "hi")  # 18 pages; the snapshots in slots leave no such hole
    states = len(box.cache.saved)
    while box.core.rest():
        pass
    assert box.reports[-1].evictions == 0
    assert len(box.cache.saved) >= states >= 3


@pytest.mark.parametrize("can_trim", [True, False])
def test_a_state_with_many_siblings_is_saved_once(can_trim: bool) -> None:
    box = Box(slots=4, can_trim=can_trim)
    prefix = lines("prefix", 640)
    for turn in range(12):
        for number in range(4):
            box.submit(f"{turn} {number}", prefix + f"question {turn} {number}")
        box.run()
        box.check()
        while box.core.rest():
            pass
    tokens = [state.tokens.tobytes() for state in box.cache.saved]
    assert len(tokens) == len(set(tokens)) >= 48


def test_the_least_recently_used_states_are_dropped_under_the_cap() -> None:
    box = Box(slots=1, cap=6 * 4096)
    for number in range(12):
        box.ask(f"{number}", lines(f"{number}", 200) + "hi")
    assert box.reports[-1].evictions > 0
    assert box.cached("first", lines("0", 200) + "hi") == 0
    assert box.cached("recent", lines("10", 200) + "hi") == 201


def test_tenants_never_share() -> None:
    box = Box(slots=3)
    prompt = lines("one", 500) + "hello"
    box.ask("a", prompt, "red")
    assert box.cached("b", prompt, "blue") == 0
    for number in range(4):
        box.ask(f"{number}", lines(f"{number}", 200) + "hi", "green")
    assert box.cached("c", prompt, "green") == 0
    assert box.cached("d", prompt, "red") > 400
    for name in "xy":
        box.submit(name, lines("two", 500) + "hello", name)
    box.run()
    assert box.usage("x").cached_tokens == box.usage("y").cached_tokens == 0


def test_prompts_that_part_at_a_branch_compute_only_what_follows() -> None:
    box = Box(slots=1, can_trim=False)
    system, first, second = lines("system", 320), lines("first", 300), lines("second", 300)
    branches = (320, 576)
    box.ask("a", system + first + "hello", branches=branches)
    # Only the last message changes: back to the snapshot in front of it.
    assert box.ask("b", system + first + "other", branches=branches).cached_tokens == 576
    # Another conversation with the same system prompt.
    assert box.ask("c", system + second + "hello", branches=branches).cached_tokens == 320


def test_where_prompts_were_seen_to_part_is_remembered() -> None:
    box = Box(slots=2, can_trim=False)
    prefix = lines("prefix", 500)
    assert box.cached("a", prefix + "one thing") == 0
    assert box.cached("b", prefix + "another") in (0, 448)
    assert box.cached("c", prefix + "a third") == 448


@pytest.mark.parametrize("can_trim", [True, False])
def test_exact_mode_uses_only_what_was_prefilled_and_few_rows(can_trim: bool) -> None:
    box = Box(slots=4, can_trim=can_trim, exact=True)
    first = lines("one", 500) + "hello" * 20
    box.ask("a", first)
    assert box.cached("b", first + "hello" * 20 + "\nmore") == len(first) // GRID * GRID
    for name in "cdef":
        box.submit(name, lines(name, 100) + name * 50)
    box.run()
    assert box.backend.most_rows == 2


@pytest.mark.parametrize("can_trim", [True, False])
def test_a_damaged_state_is_dropped_counted_and_computed_again(can_trim: bool) -> None:
    box = Box(slots=1, can_trim=can_trim)
    first = lines("one", 500) + "hello"
    box.ask("a", first)
    box.ask("b", lines("two", 500) + "hi")
    (state,) = box.cache.saved
    box.cache.memory.view(state.image.offset, state.image.size)[300] ^= 1
    assert box.cached("c", first + "hello\nmore") == 0
    assert box.reports[-1].dropped == 1
    box.ask("d", lines("three", 500) + "hi")
    assert box.cached("e", first + "hello\nmore") > 400


def test_swapped_states_are_found_out() -> None:
    box = Box(slots=1)
    for name in "abc":
        box.ask(name, lines(name, 500) + "hi")
    first, second = list(box.cache.saved)
    first.image.offset, second.image.offset = second.image.offset, first.image.offset
    for number, name in enumerate("ab"):
        assert box.cached(f"again {name}", lines(name, 500) + "hi") == 0
        assert box.reports[-1].dropped == number + 1


def test_a_state_of_another_tenant_is_found_out() -> None:
    box = Box(slots=1)
    box.ask("a", lines("a", 500) + "hi", "red")
    box.ask("b", lines("b", 500) + "hi", "red")
    (state,) = box.cache.saved
    state.tenant = "blue"
    box.cache.saved.add(state)
    assert box.cached("c", lines("a", 500) + "hi", "blue") == 0
    assert box.reports[-1].dropped == 1


def test_a_refused_restore_is_computed_again() -> None:
    box = Box(slots=1)
    for name in "ab":
        box.ask(name, lines(name, 500) + "hi")
    box.backend.fail_restores = True
    assert box.cached("c", lines("a", 500) + "hi") == 0
    assert box.reports[-1].dropped == 1


class Course:
    """Random requests that grow, branch, abort and come back."""

    def __init__(self, box: Box, seed: int) -> None:
        self.box = box
        self.random = random.Random(seed)
        self.texts = [lines(f"{seed} {number}", 130 + 70 * number) for number in range(3)]
        self.open: dict[str, str] = {}
        self.cancelled: set[str] = set()

    def act(self, number: int) -> None:
        choice = self.random
        if choice.random() < 0.4:
            base = choice.choice(self.texts)
            line = f"line {choice.randrange(5)} of {number}"
            tenant = choice.choice(["red", "blue"])
            branches = (len(base) // GRID * GRID,) if len(base) >= GRID else ()
            self.box.submit(f"{number}", base + line, tenant, branches)
            self.open[f"{number}"] = line
            if choice.random() < 0.5 and len(base) < 2500:
                self.texts[choice.randrange(3)] = base + line + line + "\n"
        elif self.open and choice.random() < 0.1:
            name = choice.choice(list(self.open))
            self.box.core.cancel(name)
            self.cancelled.add(name)
        elif choice.random() < 0.05:
            self.box.core.rest() if self.box.core.idle else None
        self.box.step()

    def finish(self) -> None:
        self.box.run()
        for name, line in self.open.items():
            if name not in self.cancelled:
                self.box.usage(name)
            assert line.startswith(self.box.text(name))
            assert name in self.cancelled or self.box.text(name) == line


@pytest.mark.parametrize("can_trim", [True, False])
@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("cap", [0, 10 * 4096, MIB])
@settings(max_examples=12)
@given(seed=st.integers(0, 10_000))
def test_any_course_of_requests_is_answered_right(can_trim: bool, exact: bool, cap: int, seed: int) -> None:
    course = Course(Box(slots=3, cap=cap, can_trim=can_trim, exact=exact), seed)
    for number in range(120):
        course.act(number)
    course.finish()
    assert all(event.dropped == 0 for event in course.box.reports)


def test_the_debug_log_says_where_a_prompt_first_differs(caplog: pytest.LogCaptureFixture) -> None:
    box = Box()
    box.ask("a", lines("one", 200) + "hello")
    with caplog.at_level("DEBUG", logger="mashbox.engine.core"):
        box.ask("b", lines("one", 200) + "hexxo")
    assert (
        "b: 202 of 205 prompt tokens are cached; the nearest state differs from token 202 on" in caplog.text
    )


def test_moving_states_leaves_running_streams_their_tokens() -> None:
    """One copy takes all of a step's share here; who is left is seated in the steps after it."""
    box = Box(slots=6, tick=0.2)
    prefix = lines("prefix", 1000)
    box.submit("stream", "x" * 200)
    for name in "abcde":
        box.submit(name, prefix + f"{name} asks")
    for _ in range(40):
        before = len(box.text("stream"))
        box.step()
        assert before == 200 or not before or len(box.text("stream")) == before + 1
    box.run()
    assert [box.text(name) for name in "abcde"] == [f"{name} asks" for name in "abcde"]
    assert box.backend.prefilled <= 200 + 1006 + 4 * (6 + GRID)


@pytest.mark.parametrize("where", ["save", "restore", "state_size", "trim"])
def test_a_move_that_goes_wrong_ends_one_request_only(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    box = Box(slots=1)
    for name in "ab":
        box.ask(name, lines(name, 500) + "hi")

    def fails(*_: object) -> None:
        monkeypatch.undo()
        raise MemoryError("scripted")

    monkeypatch.setattr(box.backend, where, fails)
    box.submit("c", lines("a", 500) + "hi")
    box.run()
    assert any(isinstance(event, Failed) and event.id == "c" for event in box.events)
    box.check()
    assert box.ask("d", lines("a", 500) + "hi").prompt_tokens == 502
