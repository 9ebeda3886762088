"""What the HTTP side is told at its start."""

from __future__ import annotations

from dataclasses import dataclass, field

from mashbox.engine.types import Sampling


@dataclass(frozen=True, slots=True)
class ServeConfig:
    """One server: what it serves and with which defaults.

    `weights` is the weights file's name, `context` and `slots` what the worker was asked for,
    `default_sampling` what a request that says nothing gets.
    """

    model_id: str
    weights: str
    context: int
    slots: int
    cache_ram_mib: int = 0
    default_sampling: Sampling = field(default_factory=Sampling)
