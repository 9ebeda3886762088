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
from functools import partial
from pathlib import Path

from bench import ours, peer
from bench.compare import Side, Start, check_idle, compare, warm_up
from bench.config import Setup
from bench.engine_share import EngineShare, measure_engine_shares
from bench.limits import Limits, measure_limits
from bench.load import Client, Route
from bench.lookup import measure_lookups
from bench.machine import describe
from bench.measure import Scenario
from bench.model import Work, has_chat_template, read_work, requantize
from bench.ours import Exact, check_exact
from bench.process import Launch, Server
from bench.procfs import check_linux
from bench.prompts import TEMPLATE
from bench.result import Result
from bench.suite import FULL, NO_PEER, QUICK, SPEED, Part, Sizes, build, check_counts
from mashbox.catalog.entries import DEFAULT_MODEL
from mashbox.catalog.resolve import resolve
from mashbox.errors import MashboxError

RESULTS = Path(".bench")


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
    parser.add_argument("--cache-ram", type=int, metavar="MIB", help="our server's; default: its own default")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="default: one per core")
    parser.add_argument(
        "--route",
        type=Route,
        default=Route.COMPLETIONS,
        metavar="completions|chat",
        help="default completions",
    )
    parser.add_argument(
        "--only",
        type=_parts,
        metavar="NAMES",
        help=f"run only these, with commas between them: {', '.join(part.value for part in Part)}",
    )
    sides = parser.add_mutually_exclusive_group()
    sides.add_argument(
        "--exact",
        nargs="?",
        const=Exact.CERTIFIED,
        type=Exact,
        metavar="certified|uncertified",
        help="our server with --exact beside our server without it: decode and prefill",
    )
    sides.add_argument(
        "--self-test",
        nargs="?",
        const="",
        metavar="FLAGS",
        help="llama-server on both sides, on the first one with these flags added; without flags every "
        "ratio should be 1",
    )
    return parser.parse_args(argv)


def _parts(names: str) -> frozenset[Part]:
    try:
        return frozenset(Part(name) for name in names.split(","))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def run(options: argparse.Namespace) -> Result:
    """Everything from the model to the result."""
    check_linux()
    machine = describe()
    print("\n".join(machine.lines()), flush=True)
    folder = peer.bench_dir()
    setup = _setup(options, folder)
    sizes = QUICK if options.quick else FULL
    parts = _wanted(options)
    work, limits = read_work(setup.model), measure_limits(setup.threads, folder)
    launches = _launches(setup, options) if parts - NO_PEER else ()
    for launch in launches:
        print(f"{launch.name}: {shlex.join(launch.command)}", flush=True)
    start = partial(_start, launches, options.route)
    scenarios, idle = _prepare(start, parts, sizes, options) if launches else ([], {})
    return Result(
        machine=machine,
        setup=setup,
        route=options.route,
        commands={launch.name: shlex.join(launch.command) for launch in launches},
        work=work,
        limits=limits,
        idle=idle,
        rows=compare(scenarios, start, options.pairs or sizes.pairs, say=_say) if scenarios else [],
        ceilings=_ceilings(scenarios, limits, work),
        engine_shares=_shares(setup, sizes) if Part.SHARE in parts else [],
        lookups=measure_lookups(sizes.states, sizes.state_tokens) if Part.LOOKUP in parts else [],
    )


def _setup(options: argparse.Namespace, folder: Path) -> Setup:
    model = _model(options.model, folder)
    plain = options.route is Route.CHAT and not has_chat_template(model)
    template = TEMPLATE if plain else None
    return Setup(model, options.ctx, options.slots, options.threads, options.cache_ram, template)


def _shares(setup: Setup, sizes: Sizes) -> list[EngineShare]:
    return measure_engine_shares(setup, sizes.streams, sizes.decode_tokens)


def _prepare(
    start: Start, parts: frozenset[Part], sizes: Sizes, options: argparse.Namespace
) -> tuple[list[Scenario], dict[str, float]]:
    """The scenarios, and what idle servers use, after a check that both sides do the same work."""
    with start(True) as (left, right):
        if options.exact is not None:
            check_exact(left.server.port, options.exact)
        prompt_tokens = check_counts(left.client, right.client, sizes)
        return build(parts, sizes, options.slots, prompt_tokens), check_idle((left, right))


def _model(path: Path | None, folder: Path) -> Path:
    if path is not None:
        return path.resolve()
    return requantize(resolve(DEFAULT_MODEL).paths[0], folder)


def _wanted(options: argparse.Namespace) -> frozenset[Part]:
    if options.only is not None:
        only: frozenset[Part] = options.only
        return only
    if options.exact is not None:
        return SPEED
    return frozenset(Part) - (NO_PEER if options.self_test is not None else frozenset())


def _launches(setup: Setup, options: argparse.Namespace) -> tuple[Launch, Launch]:
    """The two sides: ours and the peer, or what takes their places."""
    logs = RESULTS / "logs"
    if options.exact is not None:
        return ours.launch(setup, logs, options.exact), ours.launch(setup, logs)
    right = peer.launch(setup, logs)
    if options.self_test is None:
        return ours.launch(setup, logs), right
    return peer.launch(setup, logs, shlex.split(options.self_test), "llama-server 2"), right


@contextmanager
def _start(launches: Sequence[Launch], route: Route, ours_first: bool = True) -> Iterator[tuple[Side, Side]]:
    """Both servers, started and warm, until the block ends."""
    with ExitStack() as stack:
        order = launches if ours_first else launches[::-1]
        sides = [_start_side(launch, route, stack) for launch in order]
        left, right = sides if ours_first else sides[::-1]
        yield left, right


def _start_side(launch: Launch, route: Route, stack: ExitStack) -> Side:
    server = stack.enter_context(Server(launch))
    client = stack.enter_context(Client(server.port, route, launch.must_reuse))
    warm_up(client)
    return Side(server, client)


def _ceilings(scenarios: Sequence[Scenario], limits: Limits, work: Work) -> dict[str, float]:
    most = {scenario.title: scenario.ceiling(limits, work) for scenario in scenarios}
    return {title: value for title, value in most.items() if value is not None}


def _say(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {line}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
