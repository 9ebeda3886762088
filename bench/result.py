"""Everything one run found out, as text for people and as JSON for later."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from bench.config import Setup
from bench.engine_share import EngineShare
from bench.limits import Limits
from bench.load import Route
from bench.lookup import LookupTime
from bench.machine import Machine
from bench.model import Work
from bench.report import Row, number, table


@dataclass(frozen=True, slots=True)
class Result:
    """`commands` are the full command lines by side, ours first; `idle` parts of one core used while idle.

    Both are empty, as the rows are, when no server was needed.
    """

    machine: Machine
    setup: Setup
    route: Route
    commands: Mapping[str, str]
    work: Work
    limits: Limits
    idle: Mapping[str, float]
    rows: Sequence[Row]
    ceilings: Mapping[str, float]
    """The most this machine allows, by the row's title, in the row's unit."""
    engine_shares: Sequence[EngineShare]
    lookups: Sequence[LookupTime]

    def text(self) -> str:
        """The report."""
        return "\n\n".join(
            [
                "\n".join(self.machine.lines()),
                "\n".join(f"{name}: {command}" for name, command in self.commands.items()),
                table(self.rows, self._names) if self.rows else "nothing was asked of a server",
                self._limits_text(),
                self._share_text(),
                self._lookup_text(),
            ]
        )

    def save(self, folder: Path) -> Path:
        """Write it all, each single measurement included; returns the file."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / time.strftime("%Y%m%d-%H%M%S.json")
        encoded = msgspec.json.encode(self, enc_hook=str)
        path.write_bytes(msgspec.json.format(encoded, indent=1))
        return path

    @property
    def _names(self) -> tuple[str, str]:
        left, right = self.commands
        return left, right

    def _limits_text(self) -> str:
        limits, work = self.limits, self.work
        lines = [
            f"memory: {limits.read_bytes / 1e9:.1f} GB/s read; float32 product: "
            f"{limits.f32_flops / 1e9:,.0f} GFLOP/s; int8 instructions: {limits.int8_flops / 1e9:,.0f} Gop/s",
            f"one decode step reads {work.bytes_per_step / 1e6:.1f} MB of weights",
        ]
        for row in self.rows:
            if row.title in self.ceilings:
                most, (left, right) = self.ceilings[row.title], self._names
                lines.append(
                    f"{row.title}: at most {number(most)} {row.unit}; {left} reaches "
                    f"{row.ours.median / most:.0%}, {right} {row.peer.median / most:.0%}"
                )
        return "\n".join(lines)

    def _share_text(self) -> str:
        if not self.engine_shares:
            return "our engine's time outside the library: not measured"
        return "\n".join(
            f"our engine's time outside the library, {share.streams} stream(s): {share.outside:.1%} of a step"
            for share in self.engine_shares
        )

    def _lookup_text(self) -> str:
        if not self.lookups:
            return "our lookup of a prompt: not measured"
        return "\n".join(
            f"our lookup of a prompt among {lookup.states:,} {lookup.kind} of {lookup.tokens:,} tokens: "
            f"{lookup.median * 1e3:.3f} ms, at most {lookup.longest * 1e3:.3f} ms"
            for lookup in self.lookups
        )
