from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mashbox.catalog.gguf import GgufModel, SkippedArray, Value
from mashbox.catalog.memory import (
    MemoryEstimate,
    MemorySettings,
    check_fits,
    default_cache_ram,
    default_context,
    default_slots,
    estimate,
)
from mashbox.errors import ConfigError, ModelTooBigError
from tests.unit.catalog_support import llama_metadata

MIB = 1 << 20


def llama(weights: int = 100 * MIB, **changes: Value) -> GgufModel:
    return GgufModel(llama_metadata(**changes), weights)


def model(architecture: str, weights: int = 0, **settings: Value) -> GgufModel:
    named = {f"{architecture}.{name.replace('__', '.')}": value for name, value in settings.items()}
    return GgufModel({"general.architecture": architecture, **named}, weights)


def smollm2() -> GgufModel:
    found = model(
        "llama",
        context_length=8192,
        embedding_length=576,
        block_count=30,
        feed_forward_length=1536,
        attention__head_count=9,
        attention__head_count_kv=3,
    )
    return GgufModel({**found.metadata, "tokenizer.ggml.tokens": SkippedArray(49152)}, 96_576_768)


def gemma3() -> GgufModel:
    found = model(
        "gemma3",
        context_length=32768,
        embedding_length=640,
        block_count=18,
        feed_forward_length=2048,
        attention__head_count=4,
        attention__head_count_kv=1,
        attention__key_length=256,
        attention__value_length=256,
        attention__sliding_window=512,
    )
    return GgufModel({**found.metadata, "tokenizer.ggml.tokens": SkippedArray(262144)}, 246_587_904)


@pytest.mark.parametrize(
    ("found", "context", "ubatch", "mib"),
    [(smollm2(), 8192, 512, 720), (gemma3(), 8192, 512, 96 + 60), (gemma3(), 8192, 64, 96 + 45)],
)
def test_kv_cache_as_llama_cpp_reports_it(found: GgufModel, context: int, ubatch: int, mib: int) -> None:
    assert estimate(found, context, 4, MemorySettings(ubatch=ubatch)).kv_cache == mib * MIB


@pytest.mark.parametrize(
    ("found", "ubatch", "mib"), [(smollm2(), 512, 98.25), (gemma3(), 512, 514.5), (gemma3(), 64, 64.31)]
)
def test_compute_is_close_to_what_llama_cpp_reports(found: GgufModel, ubatch: int, mib: float) -> None:
    need = estimate(found, 8192, 4, MemorySettings(ubatch=ubatch))
    assert need.compute == pytest.approx(mib * MIB, rel=0.15)


def test_exact_windows_keep_the_whole_context() -> None:
    need = estimate(gemma3(), 8192, 4, MemorySettings(exact=True))
    assert need.kv_cache == 4 * 144 * MIB


def test_without_flash_attention_its_scores_are_kept() -> None:
    """As llama.cpp reports it: all heads' scores of 512 tokens by 8192 cells, and a mask of f32."""
    settings = (MemorySettings(exact=True), MemorySettings(flash_attn=False))
    for need in (estimate(smollm2(), 8192, 2, setting) for setting in settings):
        assert need.compute == pytest.approx(166.38 * MIB, rel=0.02)


def test_without_flash_attention_every_layer_has_the_widest_ones_values() -> None:
    mixed = llama(attention__head_count_kv=(2, 0, 4, 2), shortconv__l_cache=3)
    flash, plain = (
        estimate(mixed, 4096, 1, MemorySettings(flash_attn=flash)).kv_cache for flash in (True, False)
    )
    assert plain - flash == 2 * 4096 * (2 + 2) * 64


@pytest.mark.parametrize(
    ("kind", "per_element"), [("f32", 4), ("bf16", 2), ("q8_0", 1.0625), ("q5_1", 0.75), ("q4_0", 0.5625)]
)
def test_cache_types(kind: str, per_element: float) -> None:
    elements = 4 * 4096 * 2 * 64  # layers, cells, KV heads, head length: as many for K as for V
    need = estimate(llama(), 4096, 1, MemorySettings(cache_type_k=kind))
    assert need.kv_cache == elements * (per_element + 2)


def test_unknown_cache_type() -> None:
    with pytest.raises(ConfigError, match="cannot be q3_x; choose one of: f32, f16"):
        estimate(llama(), 4096, 1, MemorySettings(cache_type_v="q3_x"))


def test_prompt_cache_and_weights_count() -> None:
    need = estimate(llama(weights=7), 4096, 1, MemorySettings(cache_ram_mib=100))
    assert need.weights == 7
    assert need.prompt_cache == 100 * MIB
    assert need.total == 7 + need.kv_cache + need.compute + 100 * MIB


def test_kv_heads_of_each_layer() -> None:
    layered = llama(attention__head_count_kv=(2, 0, 2, 0), shortconv__l_cache=3)
    full = estimate(llama(), 4096, 1).kv_cache
    conv_state = 2 * 4 * 512 * 2
    assert estimate(layered, 4096, 1).kv_cache == full // 2 + conv_state


def test_window_pattern_of_the_header_goes_first() -> None:
    local = model(
        "gemma4",
        embedding_length=512,
        block_count=4,
        attention__head_count=8,
        attention__head_count_kv=2,
        attention__key_length=128,
        attention__value_length=128,
        attention__key_length_swa=64,
        attention__value_length_swa=64,
        attention__sliding_window=512,
        attention__sliding_window_pattern=(True, True, True, False),
    )
    one = 2 * 2 * 2  # K and V, 2 heads, f16
    assert estimate(local, 8192, 1).kv_cache == one * (3 * 1024 * 64 + 8192 * 128)


def test_a_window_of_an_unknown_architecture_is_not_trusted() -> None:
    assert estimate(llama(attention__sliding_window=128), 4096, 1) == estimate(llama(), 4096, 1)


def test_layers_that_share_their_cache() -> None:
    shared = estimate(llama(attention__shared_kv_layers=2), 4096, 1).kv_cache
    assert shared * 2 == estimate(llama(), 4096, 1).kv_cache


@pytest.mark.parametrize("architecture", ["mamba", "rwkv7"])
def test_recurrent_state_does_not_grow(architecture: str) -> None:
    found = model(
        architecture,
        block_count=4,
        embedding_length=512,
        ssm__inner_size=1024,
        ssm__state_size=16,
        ssm__conv_kernel=4,
        attention__head_count_kv=0,
        **({"wkv__head_size": 64} if architecture == "rwkv7" else {}),
    )
    short, long = estimate(found, 1024, 1).kv_cache, estimate(found, 32768, 1).kv_cache
    assert 0 < short == long


def test_every_fourth_layer_attends() -> None:
    hybrid = model(
        "qwen3next",
        block_count=4,
        embedding_length=512,
        attention__head_count=8,
        attention__head_count_kv=2,
        full_attention_interval=4,
        ssm__inner_size=512,
        ssm__state_size=64,
        ssm__conv_kernel=4,
    )
    state = 3 * 4 * (512 * 64 + 3 * 512)
    assert estimate(hybrid, 4096, 1).kv_cache == estimate(llama(), 4096, 1).kv_cache // 4 + state


@given(st.integers(256, 200_000), st.integers(1, 32))
def test_more_context_or_slots_never_need_less(context: int, slots: int) -> None:
    need = estimate(gemma3(), context, slots).total
    assert estimate(gemma3(), context + 256, slots).total > need
    assert estimate(gemma3(), context, slots + 1).total > need


@pytest.mark.parametrize(
    ("free", "mib"),
    [
        (0, 0),
        (1000, 0),
        (1000 + 4 * 256 - 1, 0),
        (1000 + 4 * 256, 256),
        (1000 + 4 * 257 + 3, 257),
        (1000 + 4 * 8192, 8192),
        (1 << 20, 8192),
    ],
)
def test_default_cache_ram_is_a_quarter_of_the_rest(free: int, mib: int) -> None:
    need = MemoryEstimate(weights=600 * MIB, kv_cache=300 * MIB, compute=100 * MIB, prompt_cache=0)
    assert default_cache_ram(need, free * MIB) == mib


NEED = MemoryEstimate(weights=400, kv_cache=500, compute=50, prompt_cache=50)


def test_what_fits_is_silent() -> None:
    check_fits(NEED, 1000, context=4096, slots=4)


def test_too_much_says_what_to_change() -> None:
    with pytest.raises(ModelTooBigError) as caught:
        check_fits(NEED, 999, context=4096, slots=4)
    assert str(caught.value) == (
        "The model needs about 1.0 kB of memory, but 999 bytes are free: weights 400 bytes, "
        "4 x 4096 tokens of context 500 bytes, working buffers 50 bytes, prompt cache up to 50 bytes. "
        "Try a smaller --ctx, fewer --slots, a smaller --cache-ram, --cache-type-k q8_0 and "
        "--cache-type-v q8_0, or a smaller model."
    )


def test_weights_that_do_not_fit_need_another_model() -> None:
    with pytest.raises(ModelTooBigError, match="Choose a smaller model or a smaller quantisation"):
        check_fits(NEED, 449, context=4096, slots=4)


def test_default_context_is_what_the_model_has_up_to_a_cap() -> None:
    assert default_context(llama(), 1 << 40) == 4096
    assert default_context(llama(context_length=131072), 1 << 40) == 32768
    assert default_context(llama(context_length=12000), 1 << 40) == 12000
    assert default_context(model("llama", block_count=1), 1 << 40) == 32768


def test_default_context_shrinks_with_memory() -> None:
    long = llama(context_length=131072)
    for context in (16384, 8192, 4096):
        need = estimate(long, context, 4).total
        assert default_context(long, int(need / 0.6) + 1) == context
    tight = estimate(long, 2048, 4).total
    assert default_context(long, int(tight / 0.9) + 1) == 2048  # small ones may take more
    assert default_context(long, 0) == 512


@given(st.integers(0, 1 << 36), st.integers(1, 8), st.integers(100, 300_000))
def test_default_context_fits_when_anything_does(available: int, slots: int, trained: int) -> None:
    found = llama(context_length=trained)
    context = default_context(found, available, slots)
    assert 0 < context <= min(trained, 32768)
    fits = estimate(found, context, slots).total <= 0.9 * available
    smallest = estimate(found, min(512, trained), slots).total
    assert fits or smallest > 0.9 * available


def test_default_slots() -> None:
    long = llama(context_length=131072)
    assert default_slots(long, 1 << 40) == 4
    assert default_slots(long, int(estimate(long, 8192, 2).total / 0.6) + 1) == 2
    assert default_slots(long, int(estimate(long, 8192, 1).total / 0.6) + 1) == 1
    assert default_slots(llama(context_length=1024), 1 << 40) == 4
