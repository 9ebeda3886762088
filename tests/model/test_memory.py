"""The estimate of a model's memory against what llama.cpp says it allocates."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from mashbox.catalog.gguf import read_model
from mashbox.catalog.memory import MemorySettings, estimate
from mashbox.catalog.resolve import resolve
from mashbox.config import ModelConfig
from mashbox.engine.llama import LlamaBackend
from mashbox.logs.setup import TRACE

MIB = 1 << 20
CONTEXT, SLOTS = 2048, 2


def allocated(path: Path, exact: bool, log: pytest.LogCaptureFixture) -> tuple[list[float], float]:
    """MiB of each part of the state and of the working buffers, as the library logs them."""
    log.clear()
    flash_attn = "off" if exact else "auto"
    config = ModelConfig(str(path), CONTEXT, SLOTS, threads=1, exact=exact, flash_attn=flash_attn)
    with log.at_level(TRACE, "mashbox.llama"):
        LlamaBackend(config, lambda _: None).close()
    states = [float(found) for found in re.findall(r"(?:KV|RS) buffer size = +([\d.]+) MiB", log.text)]
    (compute,) = re.findall(r"compute buffer size = +([\d.]+) MiB", log.text)
    return states, float(compute)


@pytest.mark.parametrize("exact", [True, False], ids=["exact", "default"])
@pytest.mark.parametrize("kind", ["smollm2-135m", "gemma3-270m", "window", "hybrid", "recurrent", "experts"])
def test_the_estimate_is_what_the_library_allocates(
    tiny_model: Callable[[str], Path], caplog: pytest.LogCaptureFixture, kind: str, exact: bool
) -> None:
    path = resolve(kind).paths[0] if "-" in kind else tiny_model(kind)
    states, compute = allocated(path, exact, caplog)
    need = estimate(read_model([path]), CONTEXT, SLOTS, MemorySettings(exact=exact))
    # The log rounds each part to hundredths.
    assert need.kv_cache / MIB == pytest.approx(sum(states), abs=0.005 * len(states))
    assert compute < 1.15 * need.compute / MIB
    # Recurrent models have no mask, which is all that small ones need.
    assert kind == "recurrent" or compute > 0.85 * need.compute / MIB
