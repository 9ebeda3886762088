"""What a saved state is worth, for each kind of model and both ways to run it: to the bit, or refused.

Lengths are multiples of the grid, as those at which states are saved to be cut back to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from mashbox.catalog.resolve import resolve
from mashbox.config import ModelConfig
from mashbox.engine.host_memory import HostMemory
from mashbox.engine.llama import LlamaBackend
from mashbox.engine.state_store import StateStore
from mashbox.engine.states import as_tokens

Floats = npt.NDArray[np.float32]
Load = Callable[..., LlamaBackend]

SLOTS = 4
WINDOW = 128
"""Tokens that the tiny window model's local layers see; by default they have 768 cells."""
WRAPPED = 1344
"""A length at which the oldest of those cells have been used again."""
RESTS = ("window", "hybrid")
"""Kinds whose partial image needs the rest of the state in the slot."""
TINY = (*RESTS, "recurrent", "experts", "f16", "bf16", "q8_0", "q4_k")

both_ways = pytest.mark.parametrize("exact", [True, False], ids=["exact", "default"])


@pytest.fixture(scope="module")
def load(tiny_model: Callable[[str], Path]) -> Iterator[Load]:
    """Load a model once by its kind, with one thread, and without flash attention when it is to be exact."""
    loaded: list[LlamaBackend] = []

    @cache
    def backend(kind: str, exact: bool) -> LlamaBackend:
        real = kind in ("smollm2-135m", "gemma3-270m")
        config = ModelConfig(
            str(resolve(kind).paths[0] if real else tiny_model(kind)),
            context=1024 if real else 2048,
            slots=SLOTS,
            threads=1,
            flash_attn="off" if exact else "auto",
            exact=exact,
        )
        loaded.append(LlamaBackend(config, lambda _: None))
        return loaded[-1]

    yield backend
    for model in loaded:
        model.close()


def make_tokens(seed: int, count: int) -> list[int]:
    """Tokens that every vocabulary here has."""
    tokens: list[int] = np.random.default_rng(seed).integers(20, 250, count).tolist()
    return tokens


def empty(backend: LlamaBackend) -> None:
    for slot in range(SLOTS):
        assert backend.trim(slot, 0)
        assert backend.positions(slot) == (-1, -1)


def prefill(
    backend: LlamaBackend, slot: int, tokens: Sequence[int], start: int = 0, width: int = 64
) -> Floats:
    """Process tokens from `start` on in calls of `width`; the last one's scores."""
    logits = None
    for at in range(start, len(tokens), width):
        logits = backend.prefill(slot, at, tokens[at : at + width], at + width >= len(tokens))
    assert logits is not None
    assert np.isfinite(logits).all()
    return logits.copy()


def follow(backend: LlamaBackend, slot: int, tokens: Sequence[int], start: int) -> Floats:
    """The scores after prefilling the tokens from `start` on, and after each of four decoded tokens."""
    rows = [prefill(backend, slot, tokens, start)]
    for step, token in enumerate((30, 60, 90, 120)):
        rows.append(backend.decode([slot], [len(tokens) + step], [token])[0].copy())
    return np.array(rows)


def save(backend: LlamaBackend, slot: int, partial: bool = False) -> memoryview:
    image = memoryview(bytearray(backend.state_size(slot, partial)))
    backend.save(slot, partial, image)
    return image


@both_ways
@pytest.mark.parametrize(
    ("kind", "length"),
    [(kind, length) for kind in TINY for length in (64, 448, WRAPPED)]
    + [("smollm2-135m", 128), ("gemma3-270m", 576)],
)
def test_a_restored_state_goes_on_as_the_one_that_was_saved(
    load: Load, kind: str, length: int, exact: bool
) -> None:
    """A whole image, a partial one onto a longer state, and both: another slot's longer state, cut back."""
    # Past the next multiple of the grid, but for the real models, which are slow.
    backend, tokens = load(kind, exact), make_tokens(1, length + (70 if kind in TINY else 6))
    empty(backend)
    prefill(backend, 0, tokens[:length])
    whole, partial = save(backend, 0), save(backend, 0, partial=True)
    expected = follow(backend, 0, tokens, length)
    longer = save(backend, 0)

    backend.restore(1, False, whole)
    assert backend.positions(1)[1] == length - 1
    assert backend.trim(1, length)
    assert (follow(backend, 1, tokens, length) == expected).all()

    backend.restore(2, False, longer)
    for slot in (0, 2):
        backend.restore(slot, True, partial)
        assert backend.trim(slot, length)
        assert backend.positions(slot)[1] == length - 1
        assert (follow(backend, slot, tokens, length) == expected).all()


@both_ways
@pytest.mark.parametrize("kind", TINY)
def test_wide_calls_and_narrow_ones_make_the_same_state(load: Load, kind: str, exact: bool) -> None:
    backend, tokens = load(kind, exact), make_tokens(2, WRAPPED)
    empty(backend)
    prefill(backend, 0, tokens, width=64)
    prefill(backend, 1, tokens, width=512)
    more = tokens + make_tokens(3, 70)
    assert (follow(backend, 0, more, WRAPPED) == follow(backend, 1, more, WRAPPED)).all()


@both_ways
@pytest.mark.parametrize("kind", ["window", "hybrid", "recurrent", "q8_0"])
def test_decoding_alone_gives_the_scores_of_decoding_beside_others(
    load: Load, kind: str, exact: bool
) -> None:
    """With one thread; also where the others are no neighbours."""
    backend = load(kind, exact)
    prompts = [make_tokens(seed, 192) for seed in range(SLOTS)]
    empty(backend)
    for slot, prompt in enumerate(prompts):
        prefill(backend, slot, prompt)
    images = [save(backend, slot) for slot in range(SLOTS)]
    for together in ([0, 1, 2, 3], [0, 2], [1, 3]):
        empty(backend)
        for slot in together:
            backend.restore(slot, False, images[slot])
        beside = [row.copy() for row in backend.decode(together, [192] * len(together), [77] * len(together))]
        for slot, row in zip(together, beside, strict=True):
            empty(backend)
            backend.restore(slot, False, images[slot])
            assert (backend.decode([slot], [192], [77])[0] == row).all()


@pytest.mark.parametrize(
    ("kind", "exact", "length", "first", "shortest"),
    [
        ("q8_0", False, WRAPPED, 0, 0),
        ("hybrid", False, 448, 447, 448),
        ("recurrent", False, 448, 447, 448),
        ("window", True, WRAPPED, 0, 0),
        ("window", False, 448, 0, 0),
        # The last call of 64 took the cells of the 64 oldest tokens of the 768 + 64 before it.
        ("window", False, WRAPPED, WRAPPED - 768, WRAPPED - 768 + WINDOW),
    ],
)
def test_what_a_state_holds_and_how_far_it_can_be_cut(
    load: Load, kind: str, exact: bool, length: int, first: int, shortest: int
) -> None:
    backend = load(kind, exact)
    empty(backend)
    prefill(backend, 0, make_tokens(4, length))
    assert backend.positions(0) == (first, length - 1)
    assert backend.shortest(0) == shortest
    assert backend.trim(0, length + 1) is False  # longer than it is
    assert backend.positions(0) == (-1, -1)
    assert backend.shortest(0) == 0
    prefill(backend, 0, make_tokens(4, length))
    if shortest:
        assert backend.trim(0, shortest - 1) is False
        assert backend.positions(0) == (-1, -1)
        prefill(backend, 0, make_tokens(4, length))
    assert backend.trim(0, shortest or 1)
    assert backend.positions(0)[1] == (shortest or 1) - 1


@both_ways
@pytest.mark.parametrize("kind", ["window", "hybrid", "recurrent"])
def test_a_restored_state_can_be_cut_no_further_than_its_image_reached(
    load: Load, kind: str, exact: bool
) -> None:
    backend = load(kind, exact)
    empty(backend)
    prefill(backend, 0, make_tokens(5, 448))
    backend.restore(1, False, save(backend, 0))
    first = 448 - WINDOW if kind == "window" else 447
    assert backend.positions(1) == (first, 447)
    assert backend.shortest(1) == 448
    assert backend.trim(1, 384) is False
    assert backend.positions(1) == (-1, -1)


def test_a_wrapped_window_that_is_cut_to_the_shortest_still_has_what_it_needs(load: Load) -> None:
    """Its cells are in another order than a cold state's, so with f32 weights: close, not equal."""
    backend, tokens = load("window_f32", False), make_tokens(6, WRAPPED)
    empty(backend)
    prefill(backend, 0, tokens)
    shortest = backend.shortest(0)
    assert 0 < shortest < WRAPPED
    assert backend.trim(0, shortest)
    cold = prefill(backend, 1, tokens[: shortest + 64])
    assert prefill(backend, 0, tokens[: shortest + 64], shortest) == pytest.approx(cold, abs=2e-2)


def cut(image: memoryview, size: int) -> memoryview:
    return memoryview(bytearray(image[:size]))


def refuses(backend: LlamaBackend, partial: bool, image: memoryview, onto: memoryview | None = None) -> None:
    """Restoring raises, and leaves a slot that is empty and as good as new."""
    prompt = make_tokens(7, 100)
    backend.trim(3, 0)
    fresh = prefill(backend, 3, prompt)
    backend.trim(3, 0)
    if onto:
        backend.restore(3, False, onto)
    with pytest.raises(RuntimeError, match="state"):
        backend.restore(3, partial, image)
    assert backend.positions(3) == (-1, -1)
    assert (prefill(backend, 3, prompt) == fresh).all()


@both_ways
@pytest.mark.parametrize("kind", [*RESTS, "recurrent", "q8_0"])
def test_a_cut_image_is_refused(load: Load, kind: str, exact: bool) -> None:
    backend = load(kind, exact)
    empty(backend)
    prefill(backend, 0, make_tokens(8, 320))
    whole = save(backend, 0)
    for partial, image in ((False, whole), (True, save(backend, 0, partial=True))):
        for size in (1, 4, 12, 1000, len(image) - 1):
            refuses(backend, partial, cut(image, size), whole if partial else None)


@both_ways
@pytest.mark.parametrize("kind", [*RESTS, "recurrent", "q8_0"])
def test_a_damaged_image_never_reaches_the_library(load: Load, kind: str, exact: bool) -> None:
    backend, tokens = load(kind, exact), as_tokens(make_tokens(8, 320))
    empty(backend)
    prefill(backend, 0, tokens)
    memory = HostMemory(32 << 20)
    store = StateStore(backend, memory, b"model")
    for partial in (False, True):
        image = store.save(0, tokens, "tenant", partial, memory.take)
        assert image is not None
        view = memory.view(image.offset, image.size)
        # The magic, counts, positions, the bytes of tensors.
        for at in (0, 9, 15, 19, 43, 500, len(view) // 2, len(view) - 40, len(view) - 1):
            view[at] ^= 0x80
            assert not store.restore(1, image, tokens, "tenant")
            assert backend.positions(1) == (-1, -1)
            view[at] ^= 0x80
        others = as_tokens([*tokens[:-1], tokens[-1] + 1])
        assert not store.restore(1, image, others, "tenant")
        assert not store.restore(1, image, tokens, "another")
        assert not StateStore(backend, memory, b"another model").restore(1, image, tokens, "tenant")
        assert store.restore(0 if partial else 1, image, tokens, "tenant")
        backend.trim(1, 0)
    assert store.dropped == 2 * 11


@both_ways
def test_an_image_of_another_model_is_refused(load: Load, exact: bool) -> None:
    kinds = ("window", "hybrid", "recurrent", "q8_0")
    images = {}
    for kind in kinds:
        empty(load(kind, exact))
        prefill(load(kind, exact), 0, make_tokens(9, 192))
        images[kind] = [save(load(kind, exact), 0, partial) for partial in (False, True)]
    for kind in kinds:
        for other in set(kinds) - {kind}:
            for partial in (False, True):
                refuses(load(kind, exact), partial, images[other][partial], images[kind][0])


@both_ways
@pytest.mark.parametrize("kind", RESTS)
def test_a_partial_image_is_refused_by_a_slot_without_the_rest(load: Load, kind: str, exact: bool) -> None:
    backend, tokens = load(kind, exact), make_tokens(10, 320)
    empty(backend)
    prefill(backend, 0, tokens[:256])
    shorter = save(backend, 0)
    prefill(backend, 0, tokens, start=256)
    partial = save(backend, 0, partial=True)
    refuses(backend, True, partial)
    refuses(backend, True, partial, shorter)


def test_the_neighbours_of_a_refused_image_go_on_unchanged(load: Load) -> None:
    backend, tokens = load("hybrid", True), make_tokens(11, 262)
    empty(backend)
    prefill(backend, 0, tokens[:192])
    image = save(backend, 0)
    expected = follow(backend, 0, tokens, 192)
    backend.trim(0, 0)
    backend.restore(0, False, image)
    refuses(backend, False, cut(image, len(image) - 1))
    assert (follow(backend, 0, tokens, 192) == expected).all()
