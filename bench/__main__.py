"""`python -m bench`: start both servers for each pair, alternate the scenarios, print and save the result."""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench import ours, peer
from bench.compare import Side, check_idle, compare, warm_up
from bench.config import Setup
from bench.engine_share import measure_engine_shares
from bench.errors import BenchError
from bench.limits import Limits, measure_limits
from bench.load import Ask, Client, Route
from bench.machine import describe
from bench.measure import Arrival, Decode, Prefill, Scenario, count_tokens
from bench.model import Work, read_work, requantize
from bench.process import Launch, Server
from bench.procfs import check_linux
from bench.prompts import fresh_text
from bench.result import Result
from mashbox.catalog.entries import DEFAULT_MODEL
from mashbox.catalog.resolve import resolve
from mashbox.errors import MashboxError

RESULTS = Path(".bench")


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much work each scenario is. `pairs` is how often each side is measured."""

    pairs: int
    streams: tuple[int, ...]
    decode_tokens: int
    prefill_words: int
    arriving_words: int
    running_tokens: int


FULL = Sizes(
    pairs=10,
    streams=(1, 4, 8),
    decode_tokens=128,
    prefill_words=2000,
    arriving_words=1500,
    running_tokens=192,
)
QUICK = Sizes(
    pairs=2, streams=(1, 8), decode_tokens=48, prefill_words=500, arriving_words=500, running_tokens=96
)


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit status."""
    options = _parse(argv)
    # So that being told to end, too, ends the servers.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        result = run(options)
    except MashboxError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print(f"\n{result.text()}")
    print(f"\nSaved as {result.save(RESULTS)}.")
    return 0


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--model", type=Path, help="a GGUF file; default: the demo model, converted to Q4_0")
    parser.add_argument("--pairs", type=int, help=f"measurements of each side (default {FULL.pairs})")
    parser.add_argument("--quick", action="store_true", help="a short run that shows that everything works")
    parser.add_argument("--ctx", type=int, default=4096, help="tokens per slot (default 4096)")
    parser.add_argument("--slots", type=int, default=8, help="slots on both sides (default 8)")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="default: one per core")
    parser.add_argument(
        "--route",
        type=Route,
        default=Route.COMPLETIONS,
        metavar="completions|chat",
        help="default completions",
    )
    parser.add_argument(
        "--self-test",
        nargs="?",
        const="",
        metavar="FLAGS",
        help="llama-server on both sides, on the first one with these flags added; without flags every "
        "ratio should be 1",
    )
    return parser.parse_args(argv)


def run(options: argparse.Namespace) -> Result:
    """Everything from the model to the result."""
    check_linux()
    machine = describe()
    print("\n".join(machine.lines()), flush=True)
    folder = peer.bench_dir()
    setup = Setup(_model(options.model, folder), options.ctx, options.slots, options.threads)
    sizes = QUICK if options.quick else FULL
    work, limits = read_work(setup.model), measure_limits(setup.threads, folder)
    launches = _launches(setup, options.self_test)
    for launch in launches:
        print(f"{launch.name}: {shlex.join(launch.command)}", flush=True)
    start = partial(_start, launches, options.route)
    with start() as (left, right):
        scenarios = _scenarios(sizes, left, right)
        idle = check_idle((left, right))
    rows = compare(scenarios, start, options.pairs or sizes.pairs, say=_say)
    shares = (
        measure_engine_shares(setup, sizes.streams, sizes.decode_tokens) if options.self_test is None else []
    )
    return Result(
        machine=machine,
        setup=setup,
        route=options.route,
        commands={launch.name: shlex.join(launch.command) for launch in launches},
        work=work,
        limits=limits,
        idle=idle,
        rows=rows,
        ceilings=_ceilings(scenarios, limits, work),
        engine_shares=shares,
    )


def _model(path: Path | None, folder: Path) -> Path:
    if path is not None:
        return path.resolve()
    return requantize(resolve(DEFAULT_MODEL).paths[0], folder)


def _launches(setup: Setup, self_test: str | None) -> tuple[Launch, Launch]:
    logs = RESULTS / "logs"
    right = peer.launch(setup, logs)
    if self_test is None:
        return ours.launch(setup, logs), right
    return peer.launch(setup, logs, shlex.split(self_test), "llama-server 2"), right


@contextmanager
def _start(
    launches: tuple[Launch, Launch], route: Route, ours_first: bool = True
) -> Iterator[tuple[Side, Side]]:
    """Both servers, started and warm, until the block ends."""
    with ExitStack() as stack:
        order = launches if ours_first else launches[::-1]
        sides = [_start_side(launch, route, stack) for launch in order]
        left, right = sides if ours_first else sides[::-1]
        yield left, right


def _start_side(launch: Launch, route: Route, stack: ExitStack) -> Side:
    server = stack.enter_context(Server(launch))
    client = stack.enter_context(Client(server.port, route))
    warm_up(client)
    return Side(server, client)


def _scenarios(sizes: Sizes, left: Side, right: Side) -> list[Scenario]:
    """The scenarios, after a check that both sides count the same tokens in the same requests."""
    decodes = [Decode(streams, sizes.decode_tokens) for streams in sizes.streams]
    asks = [*decodes[-1].asks, Ask(fresh_text(sizes.prefill_words, "count"), 1)]
    counts, others = count_tokens(left.client, asks), count_tokens(right.client, asks)
    if counts != others:
        raise BenchError(f"The two sides count differently: {counts} and {others}.")
    arrival = Arrival(sizes.arriving_words, sizes.running_tokens)
    return [*decodes, Prefill(sizes.prefill_words, counts[-1].prompt_tokens), arrival]


def _ceilings(scenarios: Sequence[Scenario], limits: Limits, work: Work) -> dict[str, float]:
    most = {scenario.title: scenario.ceiling(limits, work) for scenario in scenarios}
    return {title: value for title, value in most.items() if value is not None}


def _say(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {line}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
