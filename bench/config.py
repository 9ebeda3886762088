"""What both sides are given alike."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Setup:
    """One model file; `context` is in tokens per slot.

    `cache_ram` is our server's own, in MiB; None leaves it at its default, as the peer's always is.
    `chat_template` is a file with the template to use in place of the model's own.
    """

    model: Path
    context: int
    slots: int
    threads: int
    cache_ram: int | None = None
    chat_template: Path | None = None
