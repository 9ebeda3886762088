"""Runs every scenario on both sides in turn, each pair on servers just started.

Two starts of one server differ by more than most changes do: where its memory lies counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from bench.errors import BenchError
from bench.load import Ask, Client
from bench.measure import Scenario
from bench.process import Server
from bench.prompts import ENDLESS, fresh_text
from bench.report import Pair, Row, number

SETTLE_S = 0.2
"""Pause before each measurement, so that the other side has come to rest."""
WARM_UP_TOKENS = 32
WARM_UP_WORDS = 300
IDLE_S = 2.0
IDLE_SHARE = 0.02
"""Part of one core that an idle server may use while the other one is measured."""


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two servers, and the client that talks to it."""

    server: Server
    client: Client


Start = Callable[[bool], AbstractContextManager[tuple[Side, Side]]]
"""Starts both servers, ours first if True, else the peer; gives ours, then the peer. Leaving ends them."""


def compare(scenarios: Sequence[Scenario], start: Start, pairs: int, say: Callable[[str], None]) -> list[Row]:
    """One row per scenario. From pair to pair the sides swap, in their start and in their measurements.

    The server that starts second is the quicker one by almost a tenth on some machines.
    """
    taken: list[list[Pair]] = [[] for _ in scenarios]
    for number_of_pair in range(pairs):
        with start(number_of_pair % 2 == 0) as (ours, peer):
            for scenario, so_far in zip(scenarios, taken, strict=True):
                pair = _measure_pair(scenario, ours, peer, number_of_pair)
                so_far.append(pair)
                say(
                    f"pair {number_of_pair + 1}/{pairs}  {scenario.title}: {ours.server.name} "
                    f"{number(pair.ours)}, {peer.server.name} {number(pair.peer)} {scenario.unit}"
                )
    return [
        Row(scenario.title, scenario.unit, scenario.more_is_better, tuple(values))
        for scenario, values in zip(scenarios, taken, strict=True)
    ]


def _measure_pair(scenario: Scenario, ours: Side, peer: Side, number_of_pair: int) -> Pair:
    name = str(number_of_pair)
    if number_of_pair % 2 == 0:
        first = _measure(scenario, ours, name)
        return Pair(ours=first, peer=_measure(scenario, peer, name))
    first = _measure(scenario, peer, name)
    return Pair(ours=_measure(scenario, ours, name), peer=first)


def _measure(scenario: Scenario, side: Side, round_name: str) -> float:
    time.sleep(SETTLE_S)
    try:
        return scenario.measure(side.client, round_name)
    except BenchError as error:
        raise BenchError(f"{side.server.name}, {scenario.title}: {error}") from error


def warm_up(client: Client) -> None:
    """Some decoding and some prefill, not recorded."""
    client.ask_all([Ask(prompt, WARM_UP_TOKENS) for prompt in ENDLESS])
    client.ask(Ask(fresh_text(WARM_UP_WORDS, "warm-up"), 1))


def check_idle(sides: Sequence[Side]) -> dict[str, float]:
    """The part of one core that each server uses while nothing is asked of it.

    Raises BenchError when it is enough to disturb the other side.
    """
    before = [side.server.cpu_seconds() for side in sides]
    time.sleep(IDLE_S)
    used = {
        side.server.name: (side.server.cpu_seconds() - start) / IDLE_S
        for side, start in zip(sides, before, strict=True)
    }
    for name, share in used.items():
        if share > IDLE_SHARE:
            raise BenchError(
                f"{name} uses {share:.0%} of a core while idle, so it would disturb the other side."
            )
    return used
