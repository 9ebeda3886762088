"""What both sides are given alike."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Setup:
    """One model file; `context` is in tokens per slot."""

    model: Path
    context: int
    slots: int
    threads: int
