"""Tiny models with random weights, one of each kind of state and of weight, for tests that need no knowledge.

They speak in bytes of ASCII, and their greedy texts change with any token of the prompt, early ones included.
The same call writes the same file. `python -m tests.tiny_models DIRECTORY` writes all of them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Setting = int | float | list[int]

CONTEXT = 4096
WINDOW = 128
"""Tokens that the layers with a sliding window see."""
_TEMPLATE = (
    "{% for message in messages %}<|begin|>{{ message.role }}\n{{ message.content }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|begin|>assistant\n{% endif %}"
)
_CONTROL = ("<|begin|>", "<|end|>")
_MERGES = ("t h", "th e", "Ġ the", "i n", "a n", "an d")
_Q4K_VALUES, _Q4K_BYTES = 256, 144


@dataclass(slots=True)
class Sketch:
    """A model in the making: its settings, and its tensors in llama.cpp's order of dimensions reversed."""

    architecture: str
    width: int
    kind: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.Q8_0
    """How matrices are stored; vectors are always f32."""
    settings: dict[str, Setting] = field(default_factory=dict)
    tensors: dict[str, tuple[npt.NDArray[np.generic], gguf.GGMLQuantizationType]] = field(
        default_factory=dict
    )
    random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(7))

    def matrix(self, name: str, *shape: int, gain: float = 1.0) -> None:
        """Weights that keep a vector's size, times `gain`. `shape`: (..., outputs, inputs)."""
        values = self.normal(shape) * (gain / shape[-1] ** 0.5)
        if self.kind == gguf.GGMLQuantizationType.Q4_K:
            self.tensors[name + ".weight"] = (self._q4_k(shape, gain), self.kind)
        else:
            self.tensors[name + ".weight"] = (gguf.quants.quantize(values, self.kind), self.kind)

    def values(self, name: str, values: npt.NDArray[np.floating]) -> None:
        """A tensor of exactly these values; the whole name counts."""
        self.tensors[name] = (values.astype(np.float32), gguf.GGMLQuantizationType.F32)

    def ones(self, name: str, size: int, gain: float = 1.0) -> None:
        """The weights of a norm."""
        self.values(name + ".weight", np.full(size, gain))

    def normal(self, shape: tuple[int, ...]) -> Floats:
        return self.random.standard_normal(shape, np.float32)

    def _q4_k(self, shape: tuple[int, ...], gain: float) -> npt.NDArray[np.uint8]:
        """Blocks of random bits: the gguf package reads this format but cannot write it."""
        blocks = int(np.prod(shape)) // _Q4K_VALUES
        data = self.random.integers(0, 256, (blocks, _Q4K_BYTES), np.uint8)
        # A value is d * 10 * (0 to 15) - dmin * 10; its spread is 46 d.
        step = gain / shape[-1] ** 0.5 / 46
        data[:, 0:4] = np.array([step, 7.5 * step], np.float16).view(np.uint8)
        data[:, 4:12], data[:, 12:16] = 10, 10 | 10 << 4
        return data.reshape(*shape[:-1], -1)

    def write(self, path: Path) -> None:
        """Write the file, with its vocabulary."""
        writer = gguf.GGUFWriter(path, self.architecture)
        writer.add_name(f"tiny {self.architecture}")
        writer.add_context_length(CONTEXT)
        writer.add_embedding_length(self.width)
        _add_vocabulary(writer)
        for name, value in self.settings.items():
            writer.add_key_value(f"{self.architecture}.{name}", value, *_value_type(value))
        for name, (data, kind) in self.tensors.items():
            writer.add_tensor(name, data, raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()


def _value_type(value: Setting) -> tuple[gguf.GGUFValueType, gguf.GGUFValueType | None]:
    if isinstance(value, list):
        return gguf.GGUFValueType.ARRAY, gguf.GGUFValueType.INT32
    return (gguf.GGUFValueType.FLOAT32 if isinstance(value, float) else gguf.GGUFValueType.UINT32), None


def _byte_letters() -> Iterator[str]:
    """How byte-level vocabularies write each byte: visible ones as themselves, the rest from U+0100 on."""
    spare = 0x100
    for byte in range(256):
        if 0x21 <= byte <= 0x7E or 0xA1 <= byte <= 0xAC or byte >= 0xAE:
            yield chr(byte)
        else:
            yield chr(spare)
            spare += 1


def _words() -> list[str]:
    return [*_byte_letters(), *(merge.replace(" ", "") for merge in _MERGES)]


def _add_vocabulary(writer: gguf.GGUFWriter) -> None:
    words = _words()
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([*words, *_CONTROL])
    writer.add_token_types([gguf.TokenType.NORMAL] * len(words) + [gguf.TokenType.CONTROL] * len(_CONTROL))
    writer.add_token_merges(list(_MERGES))
    writer.add_eos_token_id(len(words) + _CONTROL.index("<|end|>"))
    writer.add_add_bos_token(False)
    writer.add_chat_template(_TEMPLATE)


def _add_ends(sketch: Sketch, norm: str) -> None:
    """Embedding and output. Only tokens of visible ASCII get scores, so that texts stay readable."""
    words = _words()
    count = len(words) + len(_CONTROL)
    sketch.matrix("token_embd", count, sketch.width, gain=sketch.width**0.5)
    sketch.ones(norm, sketch.width)
    sketch.matrix("output", count, sketch.width, gain=4.0)
    silent = [place for place, word in enumerate(words) if not word.lstrip("Ġ").isascii()]
    sketch.tensors["output.weight"][0][[*silent, *range(len(words), count)]] = 0


def _add_attention(sketch: Sketch, layer: str, heads: int, kv_heads: int, head: int) -> None:
    # Sharp queries look at few tokens, so that each one counts.
    sketch.matrix(f"{layer}.attn_q", heads * head, sketch.width, gain=2.0)
    sketch.matrix(f"{layer}.attn_k", kv_heads * head, sketch.width, gain=2.0)
    sketch.matrix(f"{layer}.attn_v", kv_heads * head, sketch.width)
    sketch.matrix(f"{layer}.attn_output", sketch.width, heads * head, gain=2.0)


def _add_feed_forward(sketch: Sketch, layer: str, inner: int) -> None:
    sketch.ones(f"{layer}.ffn_norm", sketch.width)
    sketch.matrix(f"{layer}.ffn_gate", inner, sketch.width)
    sketch.matrix(f"{layer}.ffn_up", inner, sketch.width)
    sketch.matrix(f"{layer}.ffn_down", sketch.width, inner, gain=2.0)


def dense(kind: gguf.GGMLQuantizationType) -> Sketch:
    """Full attention, 2 layers; every matrix of it is of one kind."""
    width, heads, kv_heads, layers, inner = 256, 4, 2, 2, 512
    sketch = Sketch("llama", width, kind)
    sketch.settings |= {
        "block_count": layers,
        "feed_forward_length": inner,
        "attention.head_count": heads,
        "attention.head_count_kv": kv_heads,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.dimension_count": width // heads,
    }
    _add_ends(sketch, "output_norm")
    for layer in (f"blk.{number}" for number in range(layers)):
        sketch.ones(f"{layer}.attn_norm", width)
        _add_attention(sketch, layer, heads, kv_heads, width // heads)
        _add_feed_forward(sketch, layer, inner)
    return sketch


def hybrid() -> Sketch:
    """Short convolutions and attention in turn, 4 layers."""
    width, heads, kv_heads, layers, inner, taps = 128, 4, 2, 4, 256, 3
    sketch = Sketch("lfm2", width)
    sketch.settings |= {
        "block_count": layers,
        "feed_forward_length": inner,
        "attention.head_count": heads,
        "attention.head_count_kv": [0, kv_heads] * (layers // 2),
        "attention.layer_norm_rms_epsilon": 1e-5,
        "shortconv.l_cache": taps,
    }
    _add_ends(sketch, "token_embd_norm")
    for number in range(layers):
        layer = f"blk.{number}"
        sketch.ones(f"{layer}.attn_norm", width)
        if number % 2:
            _add_attention(sketch, layer, heads, kv_heads, width // heads)
            sketch.ones(f"{layer}.attn_q_norm", width // heads, gain=2.0)
            sketch.ones(f"{layer}.attn_k_norm", width // heads, gain=2.0)
        else:
            sketch.values(f"{layer}.shortconv.conv.weight", sketch.normal((width, taps)))
            sketch.matrix(f"{layer}.shortconv.in_proj", 3 * width, width)
            sketch.matrix(f"{layer}.shortconv.out_proj", width, width)
        _add_feed_forward(sketch, layer, inner)
    return sketch


def window(kind: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.Q8_0) -> Sketch:
    """Attention of which five layers in six see only the last 128 tokens."""
    width, heads, head, layers, inner = 128, 4, 32, 6, 256
    sketch = Sketch("gemma3", width, kind)
    sketch.settings |= {
        "block_count": layers,
        "feed_forward_length": inner,
        "attention.head_count": heads,
        "attention.head_count_kv": 1,
        "attention.key_length": head,
        "attention.value_length": head,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "attention.sliding_window": WINDOW,
    }
    _add_ends(sketch, "output_norm")
    # This family multiplies embeddings by the root of the width.
    sketch.matrix("token_embd", len(_words()) + len(_CONTROL), width)
    for layer in (f"blk.{number}" for number in range(layers)):
        for norm in ("attn_norm", "post_attention_norm", "post_ffw_norm"):
            sketch.ones(f"{layer}.{norm}", width)
        _add_attention(sketch, layer, heads, 1, head)
        sketch.ones(f"{layer}.attn_q_norm", head, gain=2.0)
        sketch.ones(f"{layer}.attn_k_norm", head, gain=2.0)
        _add_feed_forward(sketch, layer, inner)
    return sketch


def recurrent() -> Sketch:
    """State spaces that forget slowly, 4 layers, no attention."""
    width, layers, state, taps, rank = 128, 4, 16, 4, 32
    inner = 2 * width
    sketch = Sketch("mamba", width)
    sketch.settings |= {
        "block_count": layers,
        "feed_forward_length": 0,
        "attention.head_count": 0,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "ssm.conv_kernel": taps,
        "ssm.inner_size": inner,
        "ssm.state_size": state,
        "ssm.time_step_rank": rank,
    }
    _add_ends(sketch, "output_norm")
    for layer in (f"blk.{number}" for number in range(layers)):
        sketch.ones(f"{layer}.attn_norm", width)
        sketch.matrix(f"{layer}.ssm_in", 2 * inner, width)
        sketch.values(f"{layer}.ssm_conv1d.weight", sketch.normal((inner, taps)))
        sketch.values(f"{layer}.ssm_conv1d.bias", np.zeros(inner))
        sketch.matrix(f"{layer}.ssm_x", rank + 2 * state, inner)
        sketch.matrix(f"{layer}.ssm_dt", inner, rank)
        sketch.values(f"{layer}.ssm_dt.bias", np.zeros(inner))
        # Half-lives from a few tokens to thousands.
        sketch.values(f"{layer}.ssm_a", np.tile(-np.geomspace(0.0003, 0.3, state), (inner, 1)))
        sketch.values(f"{layer}.ssm_d", np.ones(inner))
        sketch.matrix(f"{layer}.ssm_out", width, inner)
    return sketch


def experts() -> Sketch:
    """Full attention and 8 experts, of which each token takes 2; 2 layers."""
    width, heads, kv_heads, layers, inner, count = 128, 4, 2, 2, 64, 8
    sketch = Sketch("qwen3moe", width)
    sketch.settings |= {
        "block_count": layers,
        "feed_forward_length": inner,
        "expert_feed_forward_length": inner,
        "expert_count": count,
        "expert_used_count": 2,
        "attention.head_count": heads,
        "attention.head_count_kv": kv_heads,
        "attention.key_length": width // heads,
        "attention.value_length": width // heads,
        "attention.layer_norm_rms_epsilon": 1e-5,
    }
    _add_ends(sketch, "output_norm")
    for layer in (f"blk.{number}" for number in range(layers)):
        sketch.ones(f"{layer}.attn_norm", width)
        _add_attention(sketch, layer, heads, kv_heads, width // heads)
        sketch.ones(f"{layer}.attn_q_norm", width // heads, gain=2.0)
        sketch.ones(f"{layer}.attn_k_norm", width // heads, gain=2.0)
        sketch.ones(f"{layer}.ffn_norm", width)
        sketch.values(f"{layer}.ffn_gate_inp.weight", sketch.normal((count, width)))
        sketch.matrix(f"{layer}.ffn_gate_exps", count, inner, width)
        sketch.matrix(f"{layer}.ffn_up_exps", count, inner, width)
        sketch.matrix(f"{layer}.ffn_down_exps", count, width, inner, gain=2.0)
    return sketch


KINDS: Mapping[str, Callable[[], Sketch]] = {
    "window": window,
    "window_f32": lambda: window(gguf.GGMLQuantizationType.F32),
    "hybrid": hybrid,
    "recurrent": recurrent,
    "experts": experts,
    "f16": lambda: dense(gguf.GGMLQuantizationType.F16),
    "bf16": lambda: dense(gguf.GGMLQuantizationType.BF16),
    "q8_0": lambda: dense(gguf.GGMLQuantizationType.Q8_0),
    "q4_k": lambda: dense(gguf.GGMLQuantizationType.Q4_K),
}


def write(kind: str, directory: Path) -> Path:
    """Write the tiny model of a kind into a directory; returns `<directory>/tiny-<kind>.gguf`."""
    path = directory / f"tiny-{kind}.gguf"
    KINDS[kind]().write(path)
    return path


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    for name in KINDS:
        print(write(name, target))
