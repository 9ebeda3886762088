"""Options that several commands have: how a model is loaded. Each is declared here, once."""

from __future__ import annotations

import re
from enum import Enum
from typing import Annotated

import typer


class CacheType(str, Enum):
    """Number formats of the KV cache."""

    F32 = "f32"
    F16 = "f16"
    BF16 = "bf16"
    Q8_0 = "q8_0"
    Q5_1 = "q5_1"
    Q5_0 = "q5_0"
    Q4_1 = "q4_1"
    Q4_0 = "q4_0"
    IQ4_NL = "iq4_nl"


class FlashAttention(str, Enum):
    """Flash attention settings."""

    AUTO = "auto"
    ON = "on"
    OFF = "off"


def _check_gpu_layers(value: str) -> str:
    if value != "auto" and not value.isdecimal():
        raise typer.BadParameter("use auto or a number of layers, such as 0 or 24")
    return value


def _check_rope_scaling(value: str) -> str:
    if not re.fullmatch(r"auto|none|(linear|yarn):([1-9]\d*(\.\d+)?)", value):
        raise typer.BadParameter("use auto, none, linear:FACTOR or yarn:FACTOR, such as yarn:4")
    return value


ModelName = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="A name from `mashbox list`, a path to a .gguf file, or hf:owner/repo[:file or quant].",
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(min=1, max=512, help="Threads to compute with. Default: one per physical core."),
]
GpuLayers = Annotated[
    str,
    typer.Option(
        metavar="auto|N",
        callback=_check_gpu_layers,
        help="Layers to place on the GPU. auto: all, if the build has one.",
    ),
]
_TYPES = ", ".join(kind.value for kind in CacheType)

CacheTypeK = Annotated[
    CacheType, typer.Option(metavar="TYPE", help=f"Number format of the cached keys: {_TYPES}.")
]
CacheTypeV = Annotated[
    CacheType, typer.Option(metavar="TYPE", help="Number format of the cached values: the same choice.")
]
RopeScaling = Annotated[
    str,
    typer.Option(
        metavar="HOW",
        callback=_check_rope_scaling,
        help="Stretch the context by a factor: none, linear:F, yarn:F, or auto, as the model says.",
    ),
]


def layer_count(gpu_layers: str) -> int:
    """`ModelConfig.gpu_layers` for the option's value."""
    return -1 if gpu_layers == "auto" else int(gpu_layers)
