"""The next token: seeds, cuts of the distribution, penalties."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mashbox.engine.sampling import Penalties, Row, Sampler, candidates, index_at, nucleus
from mashbox.engine.types import Sampling

LOGITS = st.lists(st.floats(-20, 20, width=32), min_size=2, max_size=60).map(
    lambda values: np.array(values, np.float32)
)


def softmax(logits: Row, temperature: float = 1.0) -> Row:
    probs: Row = np.exp((logits - logits.max()) / np.float32(temperature))
    return probs


def draw(sampling: Sampling, logits: Row, times: int) -> list[int]:
    sampler = Sampler(sampling, [])
    return [sampler.pick(logits) for _ in range(times)]


@given(LOGITS)
def test_greedy_takes_the_most_likely(logits: Row) -> None:
    assert Sampler(Sampling(), []).pick(logits) == int(np.argmax(logits))


@given(LOGITS, st.integers(0, 2**64 - 1))
def test_the_same_seed_draws_the_same(logits: Row, seed: int) -> None:
    sampling = Sampling(temperature=1.3, top_p=0.9, seed=seed)
    assert draw(sampling, logits, 20) == draw(sampling, logits, 20)


def test_another_seed_draws_otherwise() -> None:
    flat = np.zeros(1000, np.float32)
    assert draw(Sampling(temperature=1.0, seed=1), flat, 8) != draw(
        Sampling(temperature=1.0, seed=2), flat, 8
    )


def test_draws_follow_the_distribution() -> None:
    logits = np.log(np.array([0.5, 0.3, 0.2], np.float32))
    counts = np.bincount(draw(Sampling(temperature=1.0, seed=7), logits, 20_000), minlength=3)
    assert counts / 20_000 == pytest.approx([0.5, 0.3, 0.2], abs=0.015)


def test_temperature_flattens() -> None:
    logits = np.log(np.array([0.9, 0.1], np.float32))
    hot = np.mean(draw(Sampling(temperature=2.0, seed=7), logits, 20_000))
    assert hot == pytest.approx(0.1**0.5 / (0.9**0.5 + 0.1**0.5), abs=0.015)


@given(LOGITS, st.integers(1, 10))
def test_top_k_keeps_the_k_most_likely(logits: Row, k: int) -> None:
    probs = softmax(logits)
    kept = candidates(probs, Sampling(temperature=1.0, top_k=k))
    if kept is None:
        assert k >= len(logits)
        return
    assert len(kept) == k
    assert sorted(probs[kept]) == sorted(probs)[-k:]


@given(LOGITS, st.floats(0.01, 0.99))
def test_top_p_keeps_the_smallest_set_with_the_mass(logits: Row, top_p: float) -> None:
    probs = softmax(logits)
    kept = nucleus(probs, None, top_p)
    share = probs[kept].sum(dtype=np.float64) / probs.sum(dtype=np.float64)
    assert share >= top_p - 1e-6
    least = probs[kept].min()
    without_last = (probs[kept].sum(dtype=np.float64) - least) / probs.sum(dtype=np.float64)
    assert without_last < top_p + 1e-6
    left_out = np.delete(probs, kept)
    assert left_out.size == 0 or left_out.max() <= probs[kept].min()


@given(LOGITS, st.floats(0.01, 0.99))
def test_min_p_drops_what_is_unlikely_beside_the_best(logits: Row, min_p: float) -> None:
    probs = softmax(logits)
    kept = candidates(probs, Sampling(temperature=1.0, min_p=min_p))
    assert kept is not None
    assert set(kept.tolist()) == set(np.flatnonzero(probs >= min_p * probs.max()).tolist())


@given(LOGITS, st.floats(0.001, 4.0), st.integers(0, 5), st.floats(0.01, 1.0), st.floats(0.0, 0.9))
def test_a_token_is_always_found(
    logits: Row, temperature: float, top_k: int, top_p: float, min_p: float
) -> None:
    sampling = Sampling(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, seed=3)
    for token in draw(sampling, logits, 5):
        assert 0 <= token < len(logits)


def test_repetition_covers_prompt_and_output_and_the_others_only_output() -> None:
    logits = np.array([2.0, -2.0, 2.0, 1.0], np.float32)
    penalties = Penalties(
        Sampling(repetition_penalty=2.0, frequency_penalty=0.5, presence_penalty=0.25), prompt=[0, 1]
    )
    penalties.note(2)
    penalties.note(2)
    assert penalties.apply(logits).tolist() == [1.0, -4.0, 1.0 - 2 * 0.5 - 0.25, 1.0]
    assert logits.tolist() == [2.0, -2.0, 2.0, 1.0]


def test_penalties_hold_many_tokens() -> None:
    penalties = Penalties(Sampling(presence_penalty=1.0), prompt=[])
    for token in range(300):
        penalties.note(token)
    assert penalties.apply(np.zeros(400, np.float32)).tolist() == [-1.0] * 300 + [0.0] * 100


def test_greedy_with_a_penalty_does_not_repeat() -> None:
    logits = np.array([3.0, 2.9, 2.8], np.float32)
    assert draw(Sampling(presence_penalty=1.0), logits, 3) == [0, 1, 2]


@given(st.lists(st.floats(0, 1, width=32), max_size=2000), st.floats(0, 1, exclude_max=True))
def test_a_draw_lands_where_the_running_sum_passes_the_point(weights: list[float], point: float) -> None:
    row = np.array([*weights, 1.0], dtype=np.float32)
    index = index_at(row, point)
    assert row[index] > 0
    mass = np.cumsum(row, dtype=np.float64)
    wanted, slack = point * float(mass[-1]), 1e-5 * float(mass[-1])
    assert (float(mass[index - 1]) if index else 0.0) - slack <= wanted <= float(mass[index]) + slack


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_scores_that_are_no_numbers_are_an_error_not_a_token(temperature: float) -> None:
    logits = np.array([0.0, np.nan, 1.0], dtype=np.float32)
    with pytest.raises(ArithmeticError):
        Sampler(Sampling(temperature=temperature), [1]).pick(logits)


def test_a_tiny_temperature_is_greedy() -> None:
    logits = np.array([0.0, 3.0, 1.0], dtype=np.float32)
    assert Sampler(Sampling(temperature=1e-300), [1]).pick(logits) == 1


@pytest.mark.parametrize("least", [5e-324, 1e-46, 1e-10])
def test_vanishing_settings_still_choose_by_score(least: float) -> None:
    logits = np.array([0.0, 3.0, 2.9, -50.0], np.float32)
    assert draw(Sampling(temperature=least, seed=1), logits, 3) == [1, 1, 1]
    penalties = Penalties(Sampling(repetition_penalty=least), prompt=[0, 1, 2, 3])
    scores = penalties.apply(logits)
    assert np.isfinite(scores).all()
    assert int(scores.argmax()) == 1


def test_a_huge_repetition_penalty_leaves_other_tokens() -> None:
    logits = np.array([3.0, 2.0, -1.0], np.float32)
    assert draw(Sampling(repetition_penalty=1e308), logits, 3)[:2] == [0, 1]
