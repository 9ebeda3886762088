"""Keeps a server busy with many conversations and a small prompt cache, and checks every answer.

In exact mode each greedy answer must equal the one of a second server that never reuses anything. In both
modes no word of one conversation may turn up in another one, every request must end once, and the worker's
memory must stay below its size when warm, plus the cap, plus a fixed margin.
"""

from __future__ import annotations

import argparse
import shlex
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from mashbox.catalog.entries import DEFAULT_MODEL
from mashbox.errors import MashboxError
from soak.config import LONG, Setup
from soak.run import soak

LOGS = Path(".soak")


def main(argv: Sequence[str] | None = None) -> int:
    """The command; 0 when the soak passed."""
    setup = _parse(argv)
    # So that being told to end, too, ends the servers.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    print(f"Soaking for {setup.minutes:g} min with seed {setup.seed}: {shlex.join(setup.launch().command)}")
    try:
        outcome = soak(setup)
    except MashboxError as error:
        print(f"soak: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    print(outcome.text())
    return 1 if outcome.faults or outcome.telling else 0


def _parse(argv: Sequence[str] | None) -> Setup:
    parser = argparse.ArgumentParser(prog="python -m soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0, help="how long requests are sent (default 5)")
    parser.add_argument("--seed", type=int, default=1, help="decides what is asked (default 1)")
    parser.add_argument(
        "--model", default=DEFAULT_MODEL, help=f"as for mashbox run (default {DEFAULT_MODEL})"
    )
    parser.add_argument(
        "--mode",
        choices=("exact", "default"),
        default="exact",
        help="exact also compares with cold answers, which can go on for as long again after the minutes",
    )
    parser.add_argument("--cache-ram", type=int, default=48, metavar="MIB", help="the cap (default 48)")
    parser.add_argument(
        "--ctx",
        type=int,
        default=2048,
        help="tokens per slot (default 2048; models whose tokens are single letters need 4096)",
    )
    parser.add_argument("--slots", type=int, default=4, help="default 4")
    parser.add_argument("--threads", type=int, default=1, help="of each of the two servers (default 1)")
    parser.add_argument(
        "--no-repeats",
        dest="repeats",
        action="store_false",
        help="the model cannot repeat words of its prompt (random weights), so only the comparison counts",
    )
    options = parser.parse_args(argv)
    return Setup(
        model=options.model,
        exact=options.mode == "exact",
        seed=options.seed,
        load=LONG,
        logs=LOGS,
        cache_ram_mib=options.cache_ram,
        context=options.ctx,
        repeats=options.repeats,
        slots=options.slots,
        threads=options.threads,
        minutes=options.minutes,
    )


if __name__ == "__main__":
    sys.exit(main())
