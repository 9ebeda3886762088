"""The engine's loop with thinking, budgets and grammars, on the scripted backend."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

import numpy as np
import pytest
from llguidance import LLParserLimits

from mashbox.config import ModelConfig
from mashbox.engine.core import Core
from mashbox.engine.preparer import Preparer
from mashbox.engine.prompt_cache import PromptCache
from mashbox.engine.types import (
    CacheReport,
    Constraint,
    Failed,
    Finished,
    FinishReason,
    Reasoning,
    RequestEvent,
    Sampling,
    Segment,
    Started,
    Submit,
    TextDelta,
)
from tests.scripted import LITERALS, ScriptedBackend

MARKS = Reasoning("<t>", "</t>")
INSIDE = Reasoning("<t>", "</t>", inside=True)
LIST = r'start: "[" /[a-c]{1,3}/ ("," /[a-c]{1,3}/)* "]"'


class Bench:
    """A core that runs requests as the worker would prepare them."""

    def __init__(self, slots: int = 2) -> None:
        self.backend = ScriptedBackend(ModelConfig("", context=500, slots=slots, threads=1), lambda _: None)
        self.events: list[RequestEvent] = []
        ticks: Iterator[int] = count()
        cache = PromptCache(self.backend, 0, b"")
        self.core = Core(self.backend, cache, self.take, lambda: next(ticks) * 0.001)
        self.preparer = Preparer(self.backend)

    def take(self, events: Sequence[RequestEvent | CacheReport]) -> None:
        self.events += [event for event in events if not isinstance(event, CacheReport)]

    def submit(self, name: str, line: str, **fields: Any) -> None:
        """The model would like to answer with `line`."""
        command = Submit(name, (Segment(line, False),), fields.pop("sampling", Sampling()), **fields)
        prompt = self.backend.tokenize(command.segments)
        self.core.submit(self.preparer.prepare(command, prompt, 0.0))

    def run(self) -> None:
        for _ in range(5_000):
            if self.core.idle:
                return
            self.core.step()
        raise AssertionError("the core does not come to an end")

    def answer(self, line: str, **fields: Any) -> tuple[str, str, Finished]:
        """Thinking, text and end of one request."""
        self.submit("a", line, **fields)
        self.run()
        return self.said("a", True), self.said("a", False), self.end("a")

    def said(self, name: str, thinking: bool) -> str:
        deltas = (event for event in self.events if isinstance(event, TextDelta))
        return "".join(delta.text for delta in deltas if delta.id == name and delta.thinking is thinking)

    def end(self, name: str) -> Finished:
        end = self.events[-1] if self.events[-1].id == name else None
        ends = [event for event in self.events if event.id == name and isinstance(event, Finished | Failed)]
        assert len(ends) == 1
        assert end is None or end is ends[0]
        assert isinstance(ends[0], Finished)
        return ends[0]


@pytest.fixture
def bench() -> Bench:
    return Bench()


def constrained(grammar: str) -> dict[str, Any]:
    return {"constraint": Constraint((grammar,))}


# --- thinking --------------------------------------------------------------------------------


def test_thinking_comes_out_apart_and_is_counted_with_its_closer(bench: Bench) -> None:
    thinking, text, end = bench.answer("a<t>bc</t>d", reasoning=MARKS)
    assert (thinking, text, end.reason) == ("bc", "ad", FinishReason.STOP)
    assert end.usage.reasoning_tokens == len("bc</t>")
    assert end.usage.completion_tokens == len("a<t>bc</t>d") + 1


def test_marks_may_be_control_tokens(bench: Bench) -> None:
    reasoning = Reasoning("<|open|>", "<|close|>.")
    thinking, text, end = bench.answer("a<|open|>b<|tool|><|close|>.c", reasoning=reasoning)
    assert (thinking, text) == ("b", "ac")
    assert end.usage.reasoning_tokens == 4


@pytest.mark.parametrize(("visible", "text"), [((), "xy"), (("<|tool|>",), "x<|tool|>y")])
def test_visible_control_tokens_come_as_their_literals(
    bench: Bench, visible: tuple[str, ...], text: str
) -> None:
    assert bench.answer("x<|tool|>y<|open|>", visible=visible)[1] == text


def test_an_unclosed_block_is_thinking_to_the_end(bench: Bench) -> None:
    thinking, text, end = bench.answer("abc </t", reasoning=INSIDE, max_tokens=7)
    assert (thinking, text, end.reason) == ("abc </t", "", FinishReason.LENGTH)
    assert end.usage.reasoning_tokens == 7


def test_a_stop_string_counts_outside_of_thinking_only(bench: Bench) -> None:
    thinking, text, end = bench.answer("stop</t>go stop", reasoning=INSIDE, stop=("stop",))
    assert (thinking, text, end.stop) == ("stop", "go ", "stop")


# --- budgets ---------------------------------------------------------------------------------


def budgeted(tokens: int, inside: bool = True, closing: str = "\n</t>\n\n") -> dict[str, Any]:
    return {"reasoning": Reasoning("<t>", "</t>", inside, tokens, closing)}


def test_a_spent_budget_closes_the_block_in_the_models_place(bench: Bench) -> None:
    # Seven forced tokens stand in the place of as many scripted ones.
    thinking, text, end = bench.answer("a" * 10 + "bbbb", **budgeted(3))
    assert (thinking, text) == ("aaa\n", "bbbb")
    assert end.usage.reasoning_tokens == len("aaa\n</t>")
    assert end.usage.completion_tokens == 14 + 1


@pytest.mark.parametrize(
    ("closing", "shown"), [("</t>", "cdefgh"), ("</t>\n", "defgh"), ("<|close|></t>", None)]
)
def test_a_budget_of_nothing_closes_at_once(bench: Bench, closing: str, shown: str | None) -> None:
    thinking, text, _ = bench.answer(
        "!!!!cdefgh" if closing == "</t>" else "!!!!!defgh", **budgeted(0, closing=closing)
    )
    assert thinking == ""
    assert text == (shown or "defgh")


def test_a_budget_that_is_not_spent_changes_nothing(bench: Bench) -> None:
    assert bench.answer("aaa</t>b", **budgeted(100))[:2] == ("aaa", "b")


def test_a_closer_that_has_begun_is_the_models_to_finish(bench: Bench) -> None:
    assert bench.answer("ab</t>so", **budgeted(4))[:2] == ("ab", "so")


def test_what_only_looks_like_a_mark_for_ever_does_not_spare_the_budget(bench: Bench) -> None:
    thinking, _, end = bench.answer("<" * 100, **budgeted(4, closing="</t>"))
    assert thinking == "<" * 8
    assert end.usage.reasoning_tokens == 8 + 4


def test_the_budget_is_of_all_blocks_together(bench: Bench) -> None:
    line = "<t>ab</t>c<t>de" + "!" * 4 + "f<t>" + "!" * 4 + "g"
    thinking, text, end = bench.answer(line, **budgeted(8, inside=False, closing="</t>"))
    assert (thinking, text) == ("abde", "cfg")
    assert end.usage.reasoning_tokens == len("ab</t>de</t></t>")


def test_forced_tokens_must_fit_the_limit(bench: Bench) -> None:
    thinking, text, end = bench.answer("a" * 30, max_tokens=5, **budgeted(3))
    assert (thinking, text, end.reason) == ("aaa\n<", "", FinishReason.LENGTH)
    assert end.usage.completion_tokens == 5


def test_a_closing_that_closes_nothing_is_replaced_by_the_closer(bench: Bench) -> None:
    assert bench.answer("aa!!!!b", **budgeted(2, closing="\n"))[:2] == ("aa", "b")


# --- grammars --------------------------------------------------------------------------------


def test_an_answer_that_obeys_is_left_alone_and_ends_with_its_grammar(bench: Bench) -> None:
    _, text, end = bench.answer("[ab,c] and more", **constrained(LIST))
    assert (text, end.reason) == ("[ab,c]", FinishReason.STOP)
    assert end.usage.completion_tokens == 6


def test_an_answer_that_does_not_obey_is_made_to(bench: Bench) -> None:
    # Where the script is out of the question the first of the tokens that may come is taken.
    _, text, end = bench.answer("xxb,yzz", **constrained('start: /[ab]{3}/ "," /[cd]{3}/'))
    assert (text, end.reason) == ("aab,ccc", FinishReason.STOP)


def test_an_end_of_turn_must_wait_for_the_grammar(bench: Bench) -> None:
    _, text, end = bench.answer("[", **constrained('start: "[" "a" "b"? "]"?'))
    assert (text, end.reason) == ("[a", FinishReason.STOP)
    assert end.usage.completion_tokens == 3


@pytest.mark.parametrize("seed", range(20))
def test_drawn_answers_obey(bench: Bench, seed: int) -> None:
    sampling = Sampling(temperature=5.0, top_k=20, repetition_penalty=1.1, seed=seed)
    _, text, end = bench.answer("hello there, I am a poem", sampling=sampling, **constrained(LIST))
    whole = re.fullmatch(r"\[[a-c]{1,3}(,[a-c]{1,3})*\]", text)
    assert whole if end.reason is FinishReason.STOP else text.startswith("[")


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("hm</t>[b]", "[b]"),
        ("hm</t>\t\t[b]", "[b]"),
        ("hm</t>\t\t\t\t[b]", "[a]"),
        ("[b]</t>no", "[a]"),
    ],
)
def test_a_grammar_begins_when_the_thinking_ends(bench: Bench, line: str, text: str) -> None:
    thinking, shown, end = bench.answer(line, reasoning=INSIDE, **constrained('start: "[" /[ab]/ "]"'))
    assert (thinking, shown) == (line.partition("</t>")[0], text)
    assert end.reason is FinishReason.STOP


@pytest.mark.parametrize(
    ("token", "text", "following"),
    [(b"hm</t>[a", "[a", b"]"), (b"hm</t> no", "", b"["), (b"</t>[a]", "[a]", None)],
)
def test_a_token_may_hold_the_closer_and_text(
    bench: Bench, token: bytes, text: str, following: bytes | None
) -> None:
    constraint = Constraint(('start: "[" /[ab]/ "]"',))
    command = Submit("a", (), Sampling(), reasoning=INSIDE, constraint=constraint)
    job = bench.preparer.prepare(command, [1], 0.0)
    assert "".join(shown for shown, thinking in job.text.feed(token) if not thinking) == text
    if following is None:
        assert job.ending() is FinishReason.STOP
    else:
        # White space may only come where nothing of the answer has come yet.
        scores = np.zeros(len(LITERALS), np.float32)
        scores[ord("\n")], scores[ord(following)] = (2.0, 1.0) if text else (0.0, 1.0)
        assert job.pick(scores) == ord(following)


def test_a_grammar_begins_after_a_spent_budget(bench: Bench) -> None:
    thinking, text, _ = bench.answer("a" * 10 + "[b]", **budgeted(3), **constrained(LIST))
    assert (thinking, text) == ("aaa\n", "[b]")


def test_a_turn_that_would_end_while_thinking_goes_on_to_the_grammar(bench: Bench) -> None:
    thinking, text, end = bench.answer("hm", reasoning=INSIDE, **constrained('start: "yes"'))
    assert (thinking, text.strip(), end.reason) == ("hm", "yes", FinishReason.STOP)


def test_a_free_turn_may_end_while_thinking(bench: Bench) -> None:
    thinking, text, end = bench.answer("hm", reasoning=INSIDE)
    assert (thinking, text, end.reason, end.usage.reasoning_tokens) == ("hm", "", FinishReason.STOP, 3)


def test_marks_inside_what_a_grammar_describes_are_text(bench: Bench) -> None:
    grammar = r'start: "(" /[a-z<>\/]*/ ")"'
    assert bench.answer("(a<t>b</t>c)", reasoning=MARKS, **constrained(grammar))[1] == "(a<t>b</t>c)"
    assert bench.said("a", True) == ""


def test_a_grammar_with_control_tokens(bench: Bench) -> None:
    fields = constrained('start: "<|tool|>" /[a-z]{2}/ "<|close|>"')
    _, text, _ = bench.answer("<|tool|>hi<|close|>", visible=("<|tool|>", "<|close|>"), **fields)
    assert text == "<|tool|>hi<|close|>"


def test_a_grammar_beyond_the_librarys_limits_ends_its_own_request_only(bench: Bench) -> None:
    bench.preparer._grammars._limits = LLParserLimits(step_lexer_fuel=10, verbose_errors=False)
    bench.submit("bad", "abacab" * 9, **constrained("start: /(a|b)*c(a|b){20}x/"))
    bench.submit("good", "fine")
    bench.run()
    said = [type(event) for event in bench.events if event.id == "bad"]
    assert (said[0], said[-1], said.count(Failed), said.count(Finished)) == (Started, Failed, 1, 0)
    assert bench.said("good", False) == "fine"
    bench.submit("next", "again")
    bench.run()
    assert bench.said("next", False) == "again"


@pytest.mark.parametrize("steps", range(4))
def test_a_cancelled_request_with_everything_is_silent(bench: Bench, steps: int) -> None:
    for name in "abc":
        bench.submit(name, "a" * 20 + "[b]", **budgeted(3), **constrained(LIST))
    for _ in range(steps):
        bench.core.step()
    said = [event for event in bench.events if event.id != "c"]
    bench.core.cancel("a")
    bench.core.cancel("b")
    bench.run()
    assert [event for event in bench.events if event.id != "c"] == said
    assert bench.end("c").reason is FinishReason.STOP
