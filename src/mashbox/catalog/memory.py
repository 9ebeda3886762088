"""How much memory a model will need, before it is loaded.

The KV cache and recurrent states follow exactly from the header (checked against what llama.cpp
reports, for the kinds of layers known here); working buffers are approximations.
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

MOST_CACHE_RAM, LEAST_CACHE_RAM = 8192, 256
"""MiB that the prompt cache takes by default; less than the least would hold hardly a conversation."""

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
    """The flags that change how much memory is needed. `ubatch`: most tokens processed at once.

    `exact`: sliding windows keep the whole context, and there is no flash attention.
    """

    cache_type_k: str = "f16"
    cache_type_v: str = "f16"
    cache_ram_mib: int = 0
    ubatch: int = 512
    flash_attn: bool = True
    exact: bool = False

    @property
    def keeps_scores(self) -> bool:
        """Attention writes its scores of a whole batch to memory."""
        return self.exact or not self.flash_attn


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

    keys: int
    """Numbers of each token's keys, all heads together; 0 where nothing attends."""
    values: int
    local: bool
    """Sees only the sliding window."""
    recurrent: bool


def estimate(
    model: GgufModel, context: int, slots: int, settings: MemorySettings = MemorySettings()
) -> MemoryEstimate:
    """The memory for `slots` sequences of `context` tokens each. Raises ConfigError (unknown cache type)."""
    cells = _cells(context)
    found = list(layers(model))
    # Without flash attention the library gives all layers the widest one's room for values.
    widest = max((layer.values for layer in found), default=0) if settings.keeps_scores else 0
    state = sum(_layer_bytes(model, layer, cells, widest, settings) for layer in found)
    return MemoryEstimate(
        weights=model.weights_bytes,
        kv_cache=slots * state,
        compute=_compute_bytes(model, cells, settings),
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
        local, recurrent = _is_local(model, index), _is_recurrent(model, index, kv_heads)
        if recurrent and not _is_parallel_hybrid(model):
            kv_heads = 0
        yield Layer(
            keys=kv_heads * _head_length(model, "attention.key_length", local),
            values=kv_heads * _head_length(model, "attention.value_length", local),
            local=local,
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


def _layer_bytes(
    model: GgufModel, layer: Layer, cells: int, least_values: int, settings: MemorySettings
) -> int:
    if layer.local and not settings.exact:
        window = model.number("attention.sliding_window") or 0
        cells = min(cells, _cells(window + settings.ubatch))
    values = max(layer.values, least_values) if layer.keys else 0
    per_cell = layer.keys * _type_bytes(settings.cache_type_k) + values * _type_bytes(settings.cache_type_v)
    return int(per_cell * cells) + (_recurrent_bytes(model) if layer.recurrent else 0)


def _type_bytes(name: str) -> float:
    if name not in _TYPE_BYTES:
        raise ConfigError(f"The KV cache cannot be {name}; choose one of: {', '.join(_TYPE_BYTES)}.")
    return _TYPE_BYTES[name]


def _head_length(model: GgufModel, name: str, local: bool) -> int:
    heads = model.number("attention.head_count") or 1
    even = (model.number("embedding_length") or 0) // heads
    return (local and model.number(name + "_swa")) or model.number(name) or even


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


def _compute_bytes(model: GgufModel, cells: int, settings: MemorySettings) -> int:
    """Working buffers of one batch: the scores of all its tokens weigh most, or those of attention."""
    width, heads = model.number("embedding_length") or 0, model.number("attention.head_count") or 0
    inner = (model.number("feed_forward_length") or 0) + (
        (model.number("expert_feed_forward_length") or 0) * (model.number("expert_used_count") or 0)
    )
    masks = 2 if settings.keeps_scores and any(layer.local for layer in layers(model)) else 1
    scores = heads * cells if settings.keeps_scores else 0
    floats = max(model.vocab_size, 3 * inner, scores) + 4 * width
    return settings.ubatch * (4 * floats + (4 if settings.keeps_scores else 2) * masks * cells)


def default_cache_ram(need: MemoryEstimate, available: int) -> int:
    """MiB for saved prompt states: a quarter of what stays free beside the model, at most 8192, or none."""
    mib = (available - need.total) // 4 >> 20
    return min(mib, MOST_CACHE_RAM) if mib >= LEAST_CACHE_RAM else 0


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
