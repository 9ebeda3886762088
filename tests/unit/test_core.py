"""The engine's loop on a scripted backend: fairness, ends, failures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count

import pytest

from mashbox.config import ModelConfig
from mashbox.engine.core import PREFILL_BUDGET_S, Core, Generation
from mashbox.engine.prompt_cache import PromptCache
from mashbox.engine.sampling import Sampler
from mashbox.engine.states import as_tokens
from mashbox.engine.thinking import AnswerText
from mashbox.engine.types import (
    CacheReport,
    Failed,
    Finished,
    FinishReason,
    RequestEvent,
    Sampling,
    TextDelta,
)
from tests.scripted import ScriptedBackend


class Bench:
    """A core with what it said; its clock ticks `tick` seconds a look."""

    def __init__(self, slots: int = 2, tick: float = 0.001) -> None:
        self.backend = ScriptedBackend(ModelConfig("", context=4096, slots=slots, threads=1), lambda _: None)
        self.events: list[RequestEvent] = []
        ticks: Iterator[int] = count()
        cache = PromptCache(self.backend, 0, b"")
        self.core = Core(self.backend, cache, self.take, lambda: next(ticks) * tick)

    def take(self, events: Sequence[RequestEvent | CacheReport]) -> None:
        self.events += [event for event in events if not isinstance(event, CacheReport)]

    def submit(self, name: str, prompt: str, limit: int = 1000, stops: tuple[str, ...] = ()) -> Generation:
        tokens = list(prompt.encode())
        generation = Generation(
            name, as_tokens(tokens), limit, Sampler(Sampling(), tokens), AnswerText(stops), arrived=0.0
        )
        self.core.submit(generation)
        return generation

    def run(self) -> None:
        for _ in range(10_000):
            if self.core.idle:
                return
            self.core.step()
        raise AssertionError("the core does not come to an end")

    def text(self, name: str) -> str:
        return "".join(
            event.text for event in self.events if isinstance(event, TextDelta) and event.id == name
        )

    def end(self, name: str) -> Finished | Failed:
        ends = [event for event in self.events if isinstance(event, Finished | Failed) and event.id == name]
        assert len(ends) == 1, ends
        return ends[0]


def test_answers_come_back_whole_and_end_once() -> None:
    bench = Bench(slots=2)
    for name in "abcde":
        bench.submit(name, f"say {name}" * 30)
    bench.run()
    for name in "abcde":
        end = bench.end(name)
        assert isinstance(end, Finished)
        assert end.reason is FinishReason.STOP
        assert bench.text(name) == f"say {name}" * 30
        assert end.usage.completion_tokens == 5 * 30 + 1


def test_the_limit_ends_with_length() -> None:
    bench = Bench()
    bench.submit("a", "hello", limit=3)
    bench.run()
    end = bench.end("a")
    assert isinstance(end, Finished)
    assert (bench.text("a"), end.reason, end.usage.completion_tokens) == ("hel", FinishReason.LENGTH, 3)


def test_a_stop_string_ends_and_is_not_shown() -> None:
    bench = Bench()
    bench.submit("a", "one two three", stops=(" thr", "zzz"))
    bench.run()
    end = bench.end("a")
    assert isinstance(end, Finished)
    assert (bench.text("a"), end.reason, end.stop) == ("one two", FinishReason.STOP_STRING, " thr")


def test_every_running_stream_gets_a_token_each_step_while_a_long_prompt_is_prefilled() -> None:
    bench = Bench(tick=PREFILL_BUDGET_S)
    bench.submit("stream", "x" * 100)
    bench.core.step()
    bench.submit("long", "y" * 2000, limit=3000)
    for _ in range(20):
        before = len(bench.text("stream"))
        bench.core.step()
        assert len(bench.text("stream")) == before + 1
    assert bench.text("long") == ""
    bench.run()
    assert bench.text("long") == "y" * 2000


def test_prefill_takes_as_many_chunks_as_the_budget_allows() -> None:
    bench = Bench(slots=1, tick=PREFILL_BUDGET_S / 10)
    bench.submit("a", "y" * 4000)
    bench.core.step()
    chunks = bench.core.kv_tokens // bench.backend.facts.grid
    assert 5 <= chunks <= 10


def test_a_follow_up_reuses_all_that_the_slot_knows() -> None:
    bench = Bench(slots=1)
    bench.submit("a", "z" * 200)
    bench.run()
    bench.submit("b", "z" * 200 + "z" * 100 + "w")
    bench.run()
    end = bench.end("b")
    assert isinstance(end, Finished)
    # 200 tokens of the prompt and 100 of the answer; within the answer there is no grid.
    assert end.usage.cached_tokens == 300
    assert bench.text("b") == "z" * 300 + "w"


@pytest.mark.parametrize("steps", [0, 1, 2, 5])
def test_a_cancelled_request_is_silent_and_its_slot_is_free_at_once(steps: int) -> None:
    bench = Bench(slots=1)
    bench.submit("a", "q" * 3000)
    bench.submit("b", "hi")
    for _ in range(steps):
        bench.core.step()
    said = len([event for event in bench.events if event.id == "a"])
    bench.core.cancel("a")
    bench.run()
    assert len([event for event in bench.events if event.id == "a"]) == said
    assert bench.text("b") == "hi"


def test_cancelling_what_waits_or_has_ended_is_harmless() -> None:
    bench = Bench(slots=1)
    bench.submit("a", "one")
    bench.submit("b", "two")
    bench.core.step()
    bench.core.cancel("b")
    bench.run()
    bench.core.cancel("a")
    bench.core.cancel("never")
    assert bench.text("a") == "one"
    assert [event for event in bench.events if event.id == "b"] == []


def test_a_failing_prompt_harms_nobody_else() -> None:
    bench = Bench(slots=2)
    bench.submit("good", "fine " * 20)
    bench.submit("bad", "[fail]")
    bench.run()
    assert isinstance(bench.end("bad"), Failed)
    assert bench.text("good") == "fine " * 20
    bench.submit("next", "again")
    bench.run()
    assert bench.text("next") == "again"


def test_times_are_in_order() -> None:
    bench = Bench(slots=1)
    bench.submit("a", "hello")
    bench.submit("b", "hello")
    bench.run()
    first, second = bench.end("a"), bench.end("b")
    assert isinstance(first, Finished)
    assert isinstance(second, Finished)
    assert second.usage.queue_ms > first.usage.queue_ms >= 0
    assert min(first.usage.prompt_ms, first.usage.predicted_ms) > 0
