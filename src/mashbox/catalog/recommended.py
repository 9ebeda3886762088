"""The sampling that a model's makers recommend."""

from __future__ import annotations

from mashbox.catalog.gguf import GgufModel
from mashbox.catalog.resolve import ResolvedModel
from mashbox.engine.types import Sampling

_KEYS = {
    "temperature": "general.sampling.temp",
    "top_p": "general.sampling.top_p",
    "top_k": "general.sampling.top_k",
    "min_p": "general.sampling.min_p",
    "repetition_penalty": "general.sampling.penalty_repeat",
}


def recommended_sampling(resolved: ResolvedModel, header: GgufModel) -> Sampling | None:
    """What the model file says, else what the catalog says, else None."""
    found = {name: value for name, key in _KEYS.items() if (value := _number(header, key)) is not None}
    if not found:
        return resolved.sampling
    return Sampling(
        temperature=found.get("temperature", 1.0),
        top_p=found.get("top_p", 1.0),
        top_k=int(found.get("top_k", 0)),
        min_p=found.get("min_p", 0.0),
        repetition_penalty=found.get("repetition_penalty", 1.0),
    )


def _number(header: GgufModel, key: str) -> float | None:
    value = header.metadata.get(key)
    return float(value) if isinstance(value, (int, float)) else None
