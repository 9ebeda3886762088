"""The model both sides run, and how much work it is: read from the file with our own bindings."""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
from dataclasses import dataclass
from pathlib import Path

import llama_cpp as lib

from bench.errors import BenchError

Q4_0 = 2
"""The library's number for a file whose weights are mostly Q4_0."""
_OUTPUT = b"output.weight"
_CHAT_TEMPLATE = b"tokenizer.chat_template"


@lib.llama_log_callback  # type: ignore[untyped-decorator]
def _say_nothing(level: int, text: bytes, data: object) -> None:
    """Keeps the library's log off the terminal."""


def requantize(source: Path, folder: Path) -> Path:
    """A Q4_0 copy of a model in `folder`, made once. Raises BenchError when the library refuses.

    Q4_0 is the kind the library has its fastest kernels for on most CPUs.
    """
    target = folder / f"{source.stem}-to-Q4_0.gguf"
    if target.exists():
        return target
    folder.mkdir(parents=True, exist_ok=True)
    partial = target.with_suffix(".partial")
    params = lib.llama_model_quantize_default_params()
    params.ftype = Q4_0
    params.allow_requantize = True
    params.nthread = os.cpu_count() or 1
    print(f"Converting {source.name} to Q4_0 ...", flush=True)
    lib.llama_log_set(_say_nothing, None)
    if lib.llama_model_quantize(os.fsencode(source), os.fsencode(partial), ctypes.byref(params)) != 0:
        raise BenchError(f"{source} could not be converted to Q4_0.")
    partial.rename(target)
    return target


@dataclass(frozen=True, slots=True)
class Work:
    """What a dense model must read and compute. Sizes in bytes and in numbers of weights."""

    weight_bytes: int
    parameters: int
    vocab: int
    width: int
    """Numbers per token between layers."""
    layers: int
    attention_width: int
    """Heads times head size."""
    tied: bool
    """Whether the table of token embeddings is also the output matrix."""

    @property
    def embedding(self) -> int:
        """Weights of one vocabulary-sized matrix."""
        return self.vocab * self.width

    @property
    def bytes_per_step(self) -> float:
        """Weights read once per step, however many streams; cached keys and values come on top."""
        unread = 0 if self.tied else self.embedding
        return self.weight_bytes * (1 - unread / self.parameters)

    def decode_flops(self, streams: int) -> float:
        """Two per weight and stream; attention over a short text is left out."""
        return 2.0 * streams * (self.parameters - (0 if self.tied else self.embedding))

    def prefill_flops(self, tokens: int) -> float:
        """Two per weight and token, causal attention included, the output matrix for one token only."""
        layers = self.parameters - self.embedding * (1 if self.tied else 2)
        attention = 2.0 * self.layers * self.attention_width * tokens**2
        return 2.0 * layers * tokens + attention + 2.0 * self.embedding


def read_work(path: Path) -> Work:
    """The work of a model file. Raises BenchError when the library cannot read it."""
    lib.llama_log_set(_say_nothing, None)
    params = lib.llama_model_default_params()
    params.vocab_only = True
    model = lib.llama_model_load_from_file(os.fsencode(path), params)
    if not model:
        raise BenchError(f"{path} cannot be read.")
    try:
        return _work_of(model, tied=not _names(path, _OUTPUT))
    finally:
        lib.llama_model_free(model)


def _work_of(model: object, tied: bool) -> Work:
    kind = _setting(model, "general.architecture")
    width = int(_setting(model, f"{kind}.embedding_length"))
    heads = int(_setting(model, f"{kind}.attention.head_count"))
    head_size = int(_setting(model, f"{kind}.attention.key_length") or width // heads)
    return Work(
        weight_bytes=int(lib.llama_model_size(model)),
        parameters=int(lib.llama_model_n_params(model)),
        vocab=int(lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(model))),
        width=width,
        layers=int(_setting(model, f"{kind}.block_count")),
        attention_width=heads * head_size,
        tied=tied,
    )


def _setting(model: object, key: str) -> str:
    """A value of the file's header as text; empty when it is not there."""
    buffer = ctypes.create_string_buffer(256)
    size = lib.llama_model_meta_val_str(model, key.encode(), buffer, len(buffer))
    return buffer.value.decode() if size >= 0 else ""


def has_chat_template(path: Path) -> bool:
    """Whether a model file says how a conversation becomes a prompt."""
    return _names(path, _CHAT_TEMPLATE)


def _names(path: Path, name: bytes) -> bool:
    """Whether a model file has a setting or a tensor of this name."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return data.find(struct.pack("<Q", len(name)) + name) >= 0
