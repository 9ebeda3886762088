"""One soak's settings."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.process import HOST, Launch, free_port

from soak.conversation import Lengths
from soak.traffic import Load
from soak.watch import MIB

LONG = Load(clients=8, conversations=6, families=5, turns=8, lengths=Lengths(system=150, question=40))
"""48 conversations at a time; a state of one is 200 to 900 tokens."""
SHORT = Load(
    clients=6, conversations=2, families=2, turns=4, lengths=Lengths(system=60, question=8), rounds=3
)
"""For `make test`: about half a minute."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What runs, and under which load. `program` is the server's command up to its sub-command."""

    model: str
    exact: bool
    seed: int
    load: Load
    logs: Path
    cache_ram_mib: int = 48
    context: int = 2048
    slots: int = 4
    threads: int = 1
    minutes: float | None = None
    repeats: bool = True
    """Whether the model is able to repeat words of its prompt."""
    program: Sequence[str] = (sys.executable, "-m", "mashbox")

    @property
    def cap(self) -> int:
        """Most bytes of saved states."""
        return self.cache_ram_mib * MIB

    def launch(self) -> Launch:
        """The server under test."""
        return self._launch("soaked", self.program, self.slots, self.cache_ram_mib)

    def launch_cold(self) -> Launch:
        """The reference: the same arithmetic, and nowhere to keep a state."""
        return self._launch("cold", (sys.executable, "-m", "mashbox"), 1, 0)

    def _launch(self, name: str, program: Sequence[str], slots: int, cache_ram_mib: int) -> Launch:
        port = free_port()
        options = {
            "--host": HOST,
            "--port": port,
            "--ctx": self.context,
            "--slots": slots,
            "--cache-ram": cache_ram_mib,
            "--threads": self.threads,
            "--log-level": "info",
        }
        words = [str(word) for option in options.items() for word in option]
        command = [*program, "run", self.model, *words, *(["--exact"] if self.exact else [])]
        return Launch(name, command, port, self.logs / f"{name}.log", {})
