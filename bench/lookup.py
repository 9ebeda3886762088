"""How long it takes to find the saved state of which a prompt can use most: our own code, no server.

The states are those of a busy box: some long system prompts, each with many conversations that part from
it and from one another at all lengths. They have no bytes, since a lookup looks at none.
"""

from __future__ import annotations

import random
import statistics
import time
from array import array
from collections.abc import Iterator
from dataclasses import dataclass

from bench.errors import BenchError
from mashbox.config import PREFILL_CHUNK
from mashbox.engine.host_cache import HostCache
from mashbox.engine.host_memory import HostMemory, Image
from mashbox.engine.states import ReuseRules, SavedState, Snapshot, common_length

FAMILIES = 20
"""System prompts that the states share."""
LOOKUPS = 1000
SNAPSHOTS = 8
VOCAB = 49152
NEW_TOKENS = 40
"""What a second turn adds."""


@dataclass(frozen=True, slots=True)
class LookupTime:
    """Seconds of one lookup, over many. `kind` says what the states are like."""

    kind: str
    states: int
    tokens: int
    median: float
    longest: float


def measure_lookups(states: int, tokens: int) -> list[LookupTime]:
    """Lookups among so many states of so many tokens each, for models with both kinds of states."""
    kinds = {"states that can be cut": True, "states with snapshots": False}
    return [_measure(kind, states, tokens, can_trim) for kind, can_trim in kinds.items()]


def _measure(kind: str, states: int, tokens: int, can_trim: bool) -> LookupTime:
    draw = random.Random("lookup")
    saved = list(_conversations(draw, states, tokens))
    cache = HostCache(HostMemory(0), ReuseRules(PREFILL_CHUNK, can_trim, exact=False))
    for text in saved:
        cache.add(_state(text, can_trim))
    times = [_time(cache, *prompt) for prompt in _prompts(draw, saved)]
    return LookupTime(kind, states, tokens, statistics.median(times), max(times))


def _conversations(draw: random.Random, states: int, tokens: int) -> Iterator[array[int]]:
    """Each goes along with one of the system prompts or with an earlier conversation, then its own way."""
    grown = [_random_tokens(draw, tokens) for _ in range(FAMILIES)]
    for _ in range(states):
        along = draw.choice(grown)[: draw.randrange(tokens // 4, tokens)]
        grown.append(along + _random_tokens(draw, tokens - len(along)))
        yield grown[-1]


def _prompts(draw: random.Random, saved: list[array[int]]) -> Iterator[tuple[array[int], int]]:
    """Prompts with what they share with some state at least: next turns, branches and fresh ones."""
    for number in range(LOOKUPS):
        text = draw.choice(saved)
        shared = [len(text), draw.randrange(len(text)), 0][number % 3]
        yield text[:shared] + _random_tokens(draw, len(text) - shared + NEW_TOKENS), shared


def _time(cache: HostCache, prompt: array[int], shared: int) -> float:
    """Seconds of one lookup. Raises BenchError when it misses what there is.

    Processor time: a lookup waits for nothing, and what others take of the machine is not its own.
    """
    begun = time.thread_time()
    state, reuse = cache.find(prompt, "")
    taken = time.thread_time() - begun
    if state is not None and common_length(state.tokens, prompt) < reuse.length:
        raise BenchError("A lookup gave a state of other tokens.")
    if reuse.length < shared - len(prompt) // SNAPSHOTS - PREFILL_CHUNK:
        raise BenchError(f"A lookup found {reuse.length} tokens where a state shares {shared}.")
    return taken


def _state(tokens: array[int], can_trim: bool) -> SavedState:
    step = max(len(tokens) // SNAPSHOTS, 1)
    snapshots = () if can_trim else tuple(Snapshot(at, _image(at)) for at in range(step, len(tokens), step))
    return SavedState(tokens, len(tokens), snapshots, "", _image(len(tokens)))


def _image(length: int) -> Image:
    return Image(offset=0, room=0, size=0, partial=False, length=length, positions=(0, length - 1))


def _random_tokens(draw: random.Random, number: int) -> array[int]:
    return array("i", draw.choices(range(VOCAB), k=number))
