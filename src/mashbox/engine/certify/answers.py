"""Whole greedy answers through the engine's loop: the same however their prompt's state came about?"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from mashbox.engine.backend import Backend, Logits
from mashbox.engine.certify.probe import distance, same
from mashbox.engine.core import Core, Generation
from mashbox.engine.prompt_cache import PromptCache
from mashbox.engine.sampling import Sampler
from mashbox.engine.states import as_tokens
from mashbox.engine.thinking import AnswerText
from mashbox.engine.types import CacheReport, Failed, RequestEvent, Sampling


@dataclass(slots=True)
class Answer:
    """An answer's tokens, and the scores each was chosen from."""

    tokens: list[int] = field(default_factory=list)
    scores: list[Logits] = field(default_factory=list)
    cached: int = 0
    """Tokens of its prompt that were not computed."""
    failed: str | None = None


@dataclass(frozen=True, slots=True)
class Difference:
    """How one answer differs from another: `token` is the place of the first other token, None without one;
    `scores` the largest difference up to there, `bits` whether any score has other bits."""

    token: int | None
    scores: float
    bits: bool


def compare(expected: Answer, found: Answer) -> Difference:
    """From the first other token on the contexts differ, so nothing is compared behind it."""
    largest, bits = 0.0, False
    pairs = zip(expected.scores, found.scores, strict=False)
    for place, (first, second) in enumerate(pairs):
        if not same(first, second):
            bits = True
            largest = max(largest, distance(first, second))
        if expected.tokens[place] != found.tokens[place]:
            return Difference(place, largest, bits)
    return Difference(None, largest, bits)


class Recorder(Sampler):
    """Takes the most likely token that does not end the answer, and notes what it saw."""

    def __init__(self, answer: Answer, prompt: Sequence[int], ends: Iterable[int]) -> None:
        super().__init__(Sampling(), prompt)
        self._answer = answer
        self._ends = list(ends)

    def pick(self, logits: Logits) -> int:
        """See `Sampler`."""
        scores = logits.copy()
        self._answer.scores.append(scores.copy())
        scores[self._ends] = -np.inf
        token = int(scores.argmax())
        self._answer.tokens.append(token)
        return token


class Loop:
    """The engine's own loop over a backend whose slots are emptied first; `room` bytes of host memory.

    Prompts are told to part after `branch` tokens, a length on the grid; 0: nothing is told.
    """

    def __init__(self, backend: Backend, room: int, branch: int = 0) -> None:
        for slot in range(backend.facts.slots):
            backend.trim(slot, 0)
        self._backend = backend
        self._branches = (branch,) if branch else ()
        self._cache = PromptCache(backend, room, b"certify")
        self._core = Core(backend, self._cache, self._take, time.monotonic)
        self._failed: dict[str, str] = {}
        self._asked = 0

    @property
    def evictions(self) -> int:
        """States that host memory has dropped for others."""
        return self._cache.report().evictions

    @property
    def held(self) -> int:
        """Bytes of host memory that states and snapshots take now."""
        report = self._cache.report()
        return report.host_bytes + report.snapshot_bytes

    def ask(self, prompts: Sequence[Sequence[int]], length: int) -> list[Answer]:
        """Answers of `length` tokens, to prompts that come at the same moment."""
        jobs = [self._submit(prompt, length) for prompt in prompts]
        self._run()
        return [self._answer(job, answer) for job, answer in jobs]

    def ask_beside(self, first: Sequence[int], second: Sequence[int], length: int) -> list[Answer]:
        """The second prompt comes when the first one's answer has begun."""
        jobs = [self._submit(first, length)]
        while not jobs[0][1].tokens and not self._core.idle:
            self._core.step()
        jobs.append(self._submit(second, length))
        self._run()
        return [self._answer(job, answer) for job, answer in jobs]

    def _submit(self, prompt: Sequence[int], length: int) -> tuple[Generation, Answer]:
        answer = Answer()
        self._asked += 1
        recorder = Recorder(answer, prompt, self._backend.vocabulary.ends)
        job = Generation(
            id=str(self._asked),
            prompt=as_tokens(prompt),
            limit=length,
            sampler=recorder,
            text=AnswerText(),
            arrived=time.monotonic(),
            branches=self._branches,
        )
        self._core.submit(job)
        return job, answer

    def _run(self) -> None:
        while not self._core.idle:
            self._core.step()

    def _answer(self, job: Generation, answer: Answer) -> Answer:
        answer.cached = job.reused
        answer.failed = self._failed.get(job.id)
        return answer

    def _take(self, events: list[RequestEvent | CacheReport]) -> None:
        for event in events:
            if isinstance(event, Failed):
                self._failed[event.id] = event.message
