"""Grammars, thinking marks and budgets on the demo model's own vocabulary."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from mashbox.config import ModelConfig
from mashbox.engine.core import Core
from mashbox.engine.llama import LlamaBackend
from mashbox.engine.preparer import Preparer
from mashbox.engine.prompt_cache import PromptCache
from mashbox.engine.types import (
    CacheReport,
    Constraint,
    Finished,
    FinishReason,
    Reasoning,
    RequestEvent,
    Sampling,
    Segment,
    Submit,
    TextDelta,
)

CITY = r"""
start: "<call>" "{" "\"name\": " NAME ", \"sizes\": [" SIZE (", " SIZE){0,3} "]}" "</call>"
NAME: /"[A-Za-z é]{1,30}"/
SIZE: /[1-9][0-9]{0,2}/
"""
PROMPT = "The capital of France, and how large it was in some years, as JSON:\n"


class Engine:
    """The real backend under the real loop, in this process."""

    def __init__(self, file: Path) -> None:
        config = ModelConfig(str(file), context=512, slots=4, threads=1)
        self.backend = LlamaBackend(config, lambda _: None)
        self.preparer = Preparer(self.backend)
        self.events: list[RequestEvent] = []
        self.core = Core(self.backend, PromptCache(self.backend, 0, b""), self.take, time.monotonic)

    def take(self, events: Sequence[RequestEvent | CacheReport]) -> None:
        self.events += [event for event in events if not isinstance(event, CacheReport)]

    def submit(self, name: str, **fields: Any) -> None:
        command = Submit(name, (Segment(PROMPT, True),), fields.pop("sampling", Sampling()), **fields)
        tokens = self.backend.tokenize(command.segments)
        self.core.submit(self.preparer.prepare(command, tokens, time.monotonic()))

    def run(self) -> None:
        while not self.core.idle:
            self.core.step()

    def text(self, name: str, thinking: bool = False) -> str:
        deltas = (event for event in self.events if isinstance(event, TextDelta))
        return "".join(delta.text for delta in deltas if delta.id == name and delta.thinking is thinking)

    def end(self, name: str) -> Finished:
        (end,) = (event for event in self.events if isinstance(event, Finished) and event.id == name)
        return end


@pytest.fixture(scope="module")
def loaded(demo_file: Path) -> Iterator[Engine]:
    engine = Engine(demo_file)
    yield engine
    engine.backend.close()


@pytest.fixture
def engine(loaded: Engine) -> Engine:
    loaded.events.clear()
    return loaded


def test_a_grammar_is_obeyed_greedy_and_drawn_beside_a_free_answer(engine: Engine) -> None:
    constraint = Constraint((CITY,))
    settings = {"greedy": Sampling(), "one": Sampling(temperature=1.5, seed=1)}
    settings["two"] = Sampling(temperature=1.5, top_p=0.9, repetition_penalty=1.2, seed=2)
    for name, sampling in settings.items():
        engine.submit(name, sampling=sampling, constraint=constraint, max_tokens=200)
    engine.submit("free", max_tokens=20)
    engine.run()
    for name in settings:
        text = engine.text(name)
        assert engine.end(name).reason is FinishReason.STOP, text
        body = json.loads(text.removeprefix("<call>").removesuffix("</call>"))
        assert isinstance(body["name"], str)
        assert all(0 < size < 1000 for size in body["sizes"])
    assert "<call>" not in engine.text("free")


def test_a_spent_budget_is_closed_and_the_grammar_follows(engine: Engine) -> None:
    reasoning = Reasoning("<think>", "</think>", inside=True, budget=12, closing="\n</think>\n\n")
    engine.submit("a", reasoning=reasoning, constraint=Constraint((CITY,)), max_tokens=200)
    engine.submit("free", max_tokens=12)
    engine.run()
    assert engine.text("a", thinking=True) == engine.text("free") + "\n"
    assert engine.text("a").startswith("<call>")
    assert engine.text("a").endswith("</call>")
    closer = engine.backend.tokenize([Segment("\n</think>", True)], begins=False)
    assert engine.end("a").usage.reasoning_tokens == 12 + len(closer)


def test_control_tokens_of_the_model_can_be_marks_and_text(engine: Engine) -> None:
    opener, closer, visible = "<file_sep>", "<jupyter_start>", "<jupyter_code>"
    assert {opener, closer, visible} <= set(engine.backend.facts.control_tokens)
    reasoning = Reasoning(opener, closer, inside=True, budget=5, closing=closer)
    constraint = Constraint((f'start: "{visible}" /[0-9]{{3}}/',))
    engine.submit("a", reasoning=reasoning, constraint=constraint, visible=(visible,))
    engine.run()
    assert engine.text("a").removeprefix(visible).strip().isdigit()
    usage = engine.end("a").usage
    assert usage.reasoning_tokens == 6
    assert usage.completion_tokens <= 6 + 2 + 1 + 3


def test_a_text_in_the_midst_of_an_answer_stands_for_itself(engine: Engine) -> None:
    tokens = engine.backend.tokenize(
        [Segment("<|im_start|>a", True), Segment("<|im_end|>", False)], begins=False
    )
    literals = [engine.backend.vocabulary.literals[token] for token in tokens]
    assert literals[:2] == [b"<|im_start|>", b"a"]
    assert b"".join(literals) == b"<|im_start|>a<|im_end|>"
    assert len(literals) > 3
