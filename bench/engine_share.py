"""How much of our engine's time is its own, and not the model library's.

The engine's loop runs here, in this process, with the real model; what it says goes over a real
stream to a process that reads it away. Only `llama_decode` and the fetch of its logits count as the
library; sampling, text, scheduling, encoding and sending are ours.
"""

from __future__ import annotations

import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import msgspec

from bench.config import Setup
from bench.prompts import ENDLESS
from mashbox.config import ModelConfig
from mashbox.engine.core import Core, Generation
from mashbox.engine.llama import LlamaBackend
from mashbox.engine.prompt_cache import PromptCache
from mashbox.engine.sampling import Sampler
from mashbox.engine.states import as_tokens
from mashbox.engine.supervisor import HUGE_PAGES
from mashbox.engine.thinking import AnswerText
from mashbox.engine.types import Sampling, Segment
from mashbox.engine.worker import Outbox

RUNS = 5
_SINK = "import socket, sys; s = socket.socket(fileno=int(sys.argv[1]))\nwhile s.recv(65536): pass"


@dataclass(frozen=True, slots=True)
class EngineShare:
    """`outside` is the part of the step time that was not spent in calls of the library, 0 to 1."""

    streams: int
    outside: float


class Task(msgspec.Struct):
    """What the measuring process is told."""

    model: str
    context: int
    slots: int
    threads: int
    streams: tuple[int, ...]
    tokens: int


class TimedBackend(LlamaBackend):
    """The real backend, which knows how long its library calls took."""

    library_s = 0.0

    def _run(self, rows: int) -> None:
        self._timed(super()._run, rows)

    def _read_logits(self) -> Any:
        return self._timed(super()._read_logits)

    def _timed(self, call: Callable[..., Any], *args: Any) -> Any:
        begun = time.perf_counter()
        try:
            return call(*args)
        finally:
            self.library_s += time.perf_counter() - begun


@contextmanager
def reader() -> Iterator[Outbox]:
    """An outbox whose frames another process reads."""
    ours, theirs = socket.socketpair()
    with (
        ours,
        theirs,
        subprocess.Popen(
            [sys.executable, "-c", _SINK, str(theirs.fileno())], pass_fds=[theirs.fileno()]
        ) as sink,
    ):
        theirs.close()
        outbox = Outbox(ours)
        yield outbox
        outbox.close()
        ours.close()
        sink.wait(5)


def measure_engine_shares(setup: Setup, streams: tuple[int, ...], tokens: int) -> list[EngineShare]:
    """For each number of streams, the median over greedy runs of `tokens` tokens a stream.

    In a process of its own, with the memory settings of a real worker.
    """
    task = msgspec.json.encode(
        Task(str(setup.model), setup.context, setup.slots, setup.threads, streams, tokens)
    )
    done = subprocess.run(
        [sys.executable, "-m", "bench.engine_share", task.decode()],
        env={**HUGE_PAGES, **os.environ},
        stdout=subprocess.PIPE,
        check=True,
    )
    return msgspec.json.decode(done.stdout, type=list[EngineShare])


def _measure(task: Task) -> list[EngineShare]:
    config = ModelConfig(task.model, context=task.context, slots=task.slots, threads=task.threads)
    backend = TimedBackend(config, lambda _: None)
    try:
        with reader() as outbox:
            return [
                EngineShare(
                    number,
                    statistics.median(_outside(backend, outbox, number, task.tokens) for _ in range(RUNS)),
                )
                for number in task.streams
            ]
    finally:
        backend.close()


def _outside(backend: TimedBackend, outbox: Outbox, streams: int, tokens: int) -> float:
    core = Core(backend, PromptCache(backend, 0, b""), outbox.post, time.monotonic)
    for number in range(streams):
        prompt = backend.tokenize([Segment(ENDLESS[number % len(ENDLESS)], True)])
        core.submit(
            Generation(
                str(number) * 32, as_tokens(prompt), tokens, Sampler(Sampling(), prompt), AnswerText(), 0.0
            )
        )
    while core.steps < 2:
        core.step()
    begun, library = time.perf_counter(), backend.library_s
    while not core.idle:
        core.step()
    total = time.perf_counter() - begun
    return 1 - (backend.library_s - library) / total


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(_measure(msgspec.json.decode(sys.argv[1], type=Task))))
