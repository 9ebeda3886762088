"""What the command line decides, as plain values. Each option is declared once, in `cli.py`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

PREFILL_CHUNK = 64
"""Tokens of one prefill call. The library's results do not depend on where a prompt is cut as long as
every cut is a multiple of 64 tokens (seen with flash attention on an AVX-512 CPU)."""

PREFILL_ROWS = 512
"""Most tokens of one prefill call when nothing else runs: weights are read once for all of them."""


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """What the worker needs to load one model.

    `gpu_layers` -1 means as many as the build can offload; `flash_attn` is auto, on or off;
    `cache_type_k` and `cache_type_v` are GGML type names such as f16 or q8_0.
    """

    path: str
    context: int
    slots: int
    threads: int
    gpu_layers: int = -1
    cache_type_k: str = "f16"
    cache_type_v: str = "f16"
    flash_attn: str = "auto"
    rope_scaling: str = "auto"
    prefill_chunk: int = PREFILL_CHUNK
    prefill_rows: int = PREFILL_ROWS
    cache_ram_mib: int = 0
    """Most host memory for saved prompt states; 0 saves none."""
    exact: bool = False
    """Cached and batched answers equal cold and lone ones, to the bit."""
    decode_rows: int = 1
    """Most rows of one decode call in exact mode: what a certificate allows."""


@dataclass(frozen=True, slots=True)
class LogConfig:
    """What is logged, and in which form. `level` is trace, debug, info, warning or error."""

    level: str = "info"
    json: bool = False
    """One JSON object per line."""
    prompts: bool = False
    """Prompts and answers are logged, at info."""


DEFAULT_LOG = LogConfig()


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """Everything a worker process is told at its start. `backend` is module:callable."""

    model: ModelConfig
    backend: str = "mashbox.engine.llama:LlamaBackend"
    log: LogConfig = DEFAULT_LOG


API_KEY_VARIABLE = "MASHBOX_API_KEY"
"""The environment variable that may hold a key of the server."""


def child_environment() -> dict[str, str]:
    """This process's environment for the processes it starts: without the key."""
    return {name: value for name, value in os.environ.items() if name != API_KEY_VARIABLE}


def cache_dir() -> Path:
    """Where models and builds are kept: MASHBOX_CACHE, else XDG_CACHE_HOME/mashbox, else ~/.cache/mashbox."""
    if own := os.environ.get("MASHBOX_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mashbox"
