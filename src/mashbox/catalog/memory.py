"""How much memory a model will need, before it is loaded.

The KV cache follows exactly from the header (checked against what llama.cpp reports); working
buffers and the state of recurrent layers are approximations.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rich.filesize import decimal

from mashbox.catalog.gguf import GgufModel, whole_number
from mashbox.errors import ConfigError, ModelTooBigError

DEFAULT_SLOTS = 4
DEFAULT_CONTEXT_CAP = 32768
ENOUGH_CONTEXT = 8192
"""Below this an agent's first prompt hardly fits, so rather have fewer slots."""

_CELLS = 256
"""The library rounds a sequence's cells up to a multiple of this."""
_LEAST_CONTEXT = 512
_SMALL_CONTEXT = 4096
_SHARE, _SHARE_SMALL = 0.6, 0.9
"""The part of free memory that defaults may take; a context of up to 4096 is worth more of it."""

_TYPE_BYTES: Mapping[str, float] = {
    "f32": 4,
    "f16": 2,
    "bf16": 2,
    "q8_0": 34 / 32,
    "q5_1": 24 / 32,
    "q5_0": 22 / 32,
    "q4_1": 20 / 32,
    "q4_0": 18 / 32,
    "iq4_nl": 18 / 32,
}
_LOCAL_PERIOD: Mapping[str, int] = {
    "gemma2": 2,
    "gemma3": 6,
    "gemma3n": 5,
    "cohere2": 4,
    "gpt-oss": 2,
    "olmo2": 4,
    "exaone4": 4,
    "smallthinker": 4,
}
"""Architecture -> in each group of this many layers all but the last see only the window."""


@dataclass(frozen=True, slots=True)
class MemorySettings:
    """The flags that change how much memory is needed. `ubatch`: most tokens processed at once."""

    cache_type_k: str = "f16"
    cache_type_v: str = "f16"
    cache_ram_mib: int = 0
    ubatch: int = 512


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """What a model needs, in bytes."""

    weights: int
    kv_cache: int
    """All slots together, recurrent state included."""
    compute: int
    prompt_cache: int
    """The most that the host-memory prompt cache may take."""

    @property
    def total(self) -> int:
        return self.weights + self.kv_cache + self.compute + self.prompt_cache


@dataclass(frozen=True, slots=True)
class Layer:
    """What one layer keeps for each sequence."""

    kv_heads: int
    local: bool
    """Sees only the sliding window."""
    recurrent: bool


def estimate(
    model: GgufModel, context: int, slots: int, settings: MemorySettings = MemorySettings()
) -> MemoryEstimate:
    """The memory for `slots` sequences of `context` tokens each. Raises ConfigError (unknown cache type)."""
    cells = _cells(context)
    state = sum(_layer_bytes(model, layer, cells, settings) for layer in layers(model))
    return MemoryEstimate(
        weights=model.weights_bytes,
        kv_cache=slots * state,
        compute=_compute_bytes(model, cells, settings.ubatch),
        prompt_cache=settings.cache_ram_mib << 20,
    )


def _cells(tokens: int) -> int:
    return -(-tokens // _CELLS) * _CELLS


def layers(model: GgufModel) -> Iterator[Layer]:
    """What each layer keeps, from the header."""
    count = (model.number("block_count") or 0) - (model.number("attention.shared_kv_layers") or 0)
    heads = model.number("attention.head_count") or 0
    for index in range(count):
        kv_heads = _per_layer(model, "attention.head_count_kv", index, heads)
        recurrent = _is_recurrent(model, index, kv_heads)
        yield Layer(
            kv_heads=0 if recurrent and not _is_parallel_hybrid(model) else kv_heads,
            local=_is_local(model, index),
            recurrent=recurrent,
        )


def _per_layer(model: GgufModel, name: str, index: int, default: int) -> int:
    value = model.setting(name)
    if isinstance(value, tuple):
        value = value[index] if index < len(value) else None
    found = whole_number(value)
    return default if found is None else found


def _is_local(model: GgufModel, index: int) -> bool:
    if not model.number("attention.sliding_window"):
        return False
    pattern = model.setting("attention.sliding_window_pattern")
    if isinstance(pattern, tuple):
        return index < len(pattern) and bool(pattern[index])
    # An architecture not in the table counts as seeing everything: rather too much than too little.
    period = pattern if isinstance(pattern, int) else _LOCAL_PERIOD.get(model.architecture, 0)
    return period > 0 and index % period < period - 1


def _is_recurrent(model: GgufModel, index: int, kv_heads: int) -> bool:
    if model.architecture.startswith(("mamba", "rwkv")) or _is_parallel_hybrid(model):
        return True
    if every := model.number("full_attention_interval"):
        return (index + 1) % every != 0
    return kv_heads == 0


def _is_parallel_hybrid(model: GgufModel) -> bool:
    """Attention and a state space side by side in every layer."""
    return model.architecture == "falcon-h1"


def _layer_bytes(model: GgufModel, layer: Layer, cells: int, settings: MemorySettings) -> int:
    suffix = "_swa" if layer.local else ""
    if layer.local:
        window = model.number("attention.sliding_window") or 0
        cells = min(cells, _cells(window + settings.ubatch))
    per_cell = 0.0
    for name, kind in (
        ("attention.key_length", settings.cache_type_k),
        ("attention.value_length", settings.cache_type_v),
    ):
        length = model.number(name + suffix) or model.number(name) or _head_length(model)
        per_cell += layer.kv_heads * length * _type_bytes(kind)
    return int(per_cell * cells) + (_recurrent_bytes(model) if layer.recurrent else 0)


def _type_bytes(name: str) -> float:
    if name not in _TYPE_BYTES:
        raise ConfigError(f"The KV cache cannot be {name}; choose one of: {', '.join(_TYPE_BYTES)}.")
    return _TYPE_BYTES[name]


def _head_length(model: GgufModel) -> int:
    heads = model.number("attention.head_count") or 1
    return (model.number("embedding_length") or 0) // heads


def _recurrent_bytes(model: GgufModel) -> int:
    """The state of one recurrent layer for one sequence; always in f32."""
    width = model.number("embedding_length") or 0
    if taps := model.number("shortconv.l_cache"):
        return 4 * width * (taps - 1)
    if head := model.number("wkv.head_size"):
        return 4 * width * (head + 2)
    inner, state = model.number("ssm.inner_size") or 0, model.number("ssm.state_size") or 0
    kernel, groups = model.number("ssm.conv_kernel") or 1, model.number("ssm.group_count") or 0
    return 4 * (inner * state + (kernel - 1) * (inner + 2 * groups * state))


def _compute_bytes(model: GgufModel, cells: int, ubatch: int) -> int:
    """Working buffers of one batch: the scores of all its tokens weigh most."""
    width = model.number("embedding_length") or 0
    inner = (model.number("feed_forward_length") or 0) + (
        (model.number("expert_feed_forward_length") or 0) * (model.number("expert_used_count") or 0)
    )
    floats = max(model.vocab_size, 3 * inner) + 4 * width
    return ubatch * (4 * floats + 2 * cells)


def check_fits(need: MemoryEstimate, available: int, *, context: int, slots: int) -> None:
    """Raise ModelTooBigError, with the sum and what to change, when `need` exceeds `available` bytes."""
    if need.total <= available:
        return
    cache = f", prompt cache up to {decimal(need.prompt_cache)}" if need.prompt_cache else ""
    if need.weights + need.compute > available:
        advice = "Choose a smaller model or a smaller quantisation of it."
    else:
        less_cache = ", a smaller --cache-ram" if need.prompt_cache else ""
        advice = (
            f"Try a smaller --ctx, fewer --slots{less_cache}, --cache-type-k q8_0 and --cache-type-v q8_0, "
            "or a smaller model."
        )
    raise ModelTooBigError(
        f"The model needs about {decimal(need.total)} of memory, but {decimal(available)} are free: "
        f"weights {decimal(need.weights)}, {slots} x {context} tokens of context {decimal(need.kv_cache)}, "
        f"working buffers {decimal(need.compute)}{cache}. {advice}"
    )


def default_context(
    model: GgufModel, available: int, slots: int = DEFAULT_SLOTS, settings: MemorySettings = MemorySettings()
) -> int:
    """Tokens per slot: what the model was trained for, at most 32768, within 60 % of `available` bytes.

    Steps are powers of two; one of up to 4096 may take 90 %. When nothing fits, the smallest step
    comes back and `check_fits` tells the user.
    """
    context = min(model.context_length or DEFAULT_CONTEXT_CAP, DEFAULT_CONTEXT_CAP)
    while context > _LEAST_CONTEXT:
        share = _SHARE_SMALL if context <= _SMALL_CONTEXT else _SHARE
        if estimate(model, context, slots, settings).total <= share * available:
            break
        context = _step_below(context)
    return context


def _step_below(context: int) -> int:
    """The next smaller power of two."""
    return (1 << (context - 1).bit_length()) >> 1


def default_slots(model: GgufModel, available: int, settings: MemorySettings = MemorySettings()) -> int:
    """4 slots, or 2 or 1 where only that leaves each a context of 8192 (or all the model has)."""
    enough = min(ENOUGH_CONTEXT, model.context_length or ENOUGH_CONTEXT)
    for slots in (DEFAULT_SLOTS, 2):
        if default_context(model, available, slots, settings) >= enough:
            return slots
    return 1
