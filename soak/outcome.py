"""What a soak found out, and how it reads."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from soak.watch import MARGIN, MIB

ENOUGH_WORDS = 0.6
"""Share of answers that must repeat a word of their own; else the search for others' words means nothing."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Of the worker, in bytes: once warm, and at most after that."""

    warm: int
    peak: int
    cap: int

    @property
    def allowed(self) -> int:
        """What the peak must stay below."""
        return self.warm + self.cap + MARGIN


@dataclass(frozen=True, slots=True)
class Outcome:
    """`findings` are all complaints but those that follow from the other fields."""

    findings: tuple[str, ...]
    counted: Counter[str]
    memory: Memory
    fullest: int
    """Most bytes the cache said it held."""
    repeats: bool = True
    """Whether the model is able to repeat words; one with random weights is not."""

    @property
    def faults(self) -> list[str]:
        """Everything that is wrong; empty when the soak has passed."""
        found = list(self.findings)
        if self.memory.peak > self.memory.allowed:
            found.append(
                f"the worker had {self.memory.peak / MIB:.1f} MiB, "
                f"allowed are {self.memory.allowed / MIB:.1f} MiB"
            )
        return found

    @property
    def telling(self) -> list[str]:
        """Why the soak would not have noticed a fault; empty when it was able to."""
        answers = self.counted["answers"]
        own = self.counted["answers with a word of their own"]
        found = []
        if self.repeats and own < ENOUGH_WORDS * answers:
            found.append(f"only {own} of {answers} answers have a word of their own")
        found += [
            f"nothing was counted as: {what}"
            for what in ("prompt tokens reused", "left before the first word", "left in mid-answer")
            if not self.counted[what]
        ]
        return found

    def text(self) -> str:
        """All of it, a line each."""
        lines = [f"{count:8}  {what}" for what, count in sorted(self.counted.items())]
        memory = self.memory
        lines.append(
            f"worker: {memory.warm // MIB} MiB when warm, {memory.peak // MIB} MiB at most, "
            f"{memory.allowed // MIB} MiB allowed; saved states: {self.fullest / MIB:.1f} MiB at most, "
            f"{memory.cap // MIB} MiB allowed"
        )
        lines += [f"WRONG: {fault}" for fault in self.faults]
        lines += [f"MEANS NOTHING: {reason}" for reason in self.telling]
        return "\n".join(lines)
