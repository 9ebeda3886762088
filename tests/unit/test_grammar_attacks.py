"""No schema of a client keeps the worker busy for long or ends it, on the real llguidance."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from mashbox.chat.formats.choose import choose_format
from mashbox.chat.formats.grammar import bounded, schema_rule
from mashbox.chat.types import Tool, ToolChoice
from mashbox.config import ModelConfig
from mashbox.engine import constraint, grammar_check
from mashbox.engine.constraint import GrammarError, Grammars, Matcher
from mashbox.engine.grammar_check import GrammarCheck
from mashbox.engine.types import Constraint
from tests.scripted import LITERALS, ScriptedBackend
from tests.unit.grammar_attacks import ATTACKS, SCHEMAS, Schema

COMPILE_S = 5.0
"""Processor time of this process and of the one that tries, for all steps of a constraint."""
MASK_S = 0.15
SILENCE_S = 2.5
"""The supervisor kills a worker after three."""


@pytest.fixture(scope="module")
def grammars() -> Grammars:
    return Grammars(ScriptedBackend(ModelConfig("", context=1000, slots=1, threads=1), lambda _: None))


@contextmanager
def heartbeats() -> Iterator[None]:
    """Another thread gets the interpreter all the while."""
    ended = threading.Event()
    gaps = [0.0]

    def beat() -> None:
        last = time.monotonic()
        while not ended.wait(0.01):
            gaps.append(time.monotonic() - last)
            last = time.monotonic()

    thread = threading.Thread(target=beat)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    assert max(gaps) < SILENCE_S


def slowest_step(matcher: Matcher, steps: int = 150) -> float:
    """Processor time of the slowest step of an answer by chance; it may fail, but not otherwise."""
    chance = np.random.default_rng(3)
    slowest = 0.0
    for _ in range(steps):
        begun = time.thread_time()
        try:
            row = matcher.mask(chance.standard_normal(len(LITERALS), np.float32))
            token = int(row.argmax())
            if matcher.stopped or not np.isfinite(row[token]):
                break
            matcher.consume(token)
        except RuntimeError:
            break
        finally:
            slowest = max(slowest, time.thread_time() - begun)
    return slowest


@pytest.mark.parametrize("name", ATTACKS)
@pytest.mark.timeout(60)
def test_an_attack_ends_in_a_laxer_grammar_in_time(grammars: Grammars, name: str) -> None:
    wanted = choose_format(None, "hermes").constraint(ATTACKS[name], ToolChoice("required"))
    begun = sum(os.times()[:4])
    with heartbeats():
        matcher = grammars.compile(wanted)
        assert sum(os.times()[:4]) - begun < COMPILE_S
        assert slowest_step(matcher) < MASK_S


def test_what_the_library_cannot_bound_is_cut_off() -> None:
    check = GrammarCheck()
    patterns, multiples = (
        check.fault(f"start: {schema_rule(SCHEMAS[name])}")
        for name in ("many patterns at once", "multiples of a lot")
    )
    assert patterns == grammar_check.TOO_LONG
    assert multiples is not None
    assert check.fault('start: "a"') is None


TEXT = {"type": "string"}
PATTERN = {"type": "string", "pattern": "x"}
ONE_BOUND: list[tuple[Schema, Schema]] = [
    (PATTERN | {"minLength": 3, "format": "date"}, PATTERN),
    (TEXT | {"format": "date", "maxLength": 3}, TEXT | {"format": "date"}),
    (PATTERN | {"enum": ["x"]}, TEXT | {"enum": ["x"]}),
    (TEXT | {"minLength": 1, "maxLength": 3}, TEXT | {"minLength": 1, "maxLength": 3}),
    ({"type": "integer", "multipleOf": 5, "minimum": 1}, {"type": "integer", "minimum": 1}),
    ({"patternProperties": {"x": TEXT}, "additionalProperties": False}, {"additionalProperties": True}),
    ({"properties": {"pattern": PATTERN | {"minLength": 3}}}, {"properties": {"pattern": PATTERN}}),
    ({"anyOf": [PATTERN | {"minLength": 3}, TEXT], "title": "t"}, {"anyOf": [PATTERN, TEXT], "title": "t"}),
    ({"default": PATTERN | {"minLength": 3}}, {"default": PATTERN | {"minLength": 3}}),
    ({"items": {"allOf": [PATTERN]}}, {"items": {"allOf": [TEXT]}}),
    ({"properties": {"a": PATTERN}, "anyOf": [{}]}, {"properties": {"a": TEXT}, "anyOf": [{}]}),
    ({"properties": {"allOf": PATTERN}}, {"properties": {"allOf": PATTERN}}),
]


@pytest.mark.parametrize(("schema", "expected"), ONE_BOUND)
def test_one_bound_stays_for_each_value(schema: Schema, expected: Schema) -> None:
    assert bounded(schema) == expected


def test_grammars_without_end_are_not_even_tried() -> None:
    assert GrammarCheck().fault(" " * (grammar_check.MOST_CHARACTERS + 1)) == grammar_check.TOO_BIG


def test_a_process_that_is_gone_is_started_again() -> None:
    check = GrammarCheck()
    assert check.fault('start: "a"') is None
    assert check._helper is not None
    os.kill(check._helper[0].pid, signal.SIGKILL)
    assert check.fault('start: "b"') is None
    assert (check.fault("start: missing") or "").startswith("at 1(")


def test_the_message_names_the_tools() -> None:
    tools = [Tool(f"tool_{n}", "", SCHEMAS["deep"]) for n in range(7)]
    about = choose_format(None, "hermes").constraint(tools, ToolChoice("required")).about
    assert about == "calls of 'tool_0', 'tool_1', 'tool_2', 'tool_3', 'tool_4' and 2 more"
    named = choose_format(None, "hermes").constraint(tools, ToolChoice("required", "tool_6")).about
    assert named == "calls of 'tool_6'"


def test_an_error_names_what_cannot_be_compiled(grammars: Grammars) -> None:
    with pytest.raises(GrammarError, match=r"^The grammar for calls of 'f' cannot be compiled: [^\n]+\.$"):
        grammars.compile(Constraint(("start: missing",), "calls of 'f'"))


class PanicException(BaseException):
    """What a panic looks like."""


def test_a_panic_is_an_error_like_any_other(grammars: Grammars, monkeypatch: pytest.MonkeyPatch) -> None:
    class Panicking:
        def __getattr__(self, name: str) -> object:
            def panic(*_: object) -> None:
                raise PanicException("index out of bounds")

            return panic

    matcher = grammars.compile(Constraint(('start: "a"',)))
    monkeypatch.setattr(matcher, "_matcher", Panicking())
    for call in (lambda: matcher.consume(97), lambda: matcher.takes(97), lambda: matcher.take_text("a")):
        with pytest.raises(RuntimeError, match="index out of bounds"):
            call()
    with pytest.raises(RuntimeError, match="index out of bounds"):
        matcher.mask(np.zeros(len(LITERALS), np.float32))

    def refuse(*_: object, **__: object) -> None:
        raise PanicException("no entry found")

    monkeypatch.setattr(constraint, "LLMatcher", refuse)
    with pytest.raises(GrammarError, match="no entry found"):
        grammars.compile(Constraint(('start: "a"',)))


def test_other_ends_are_not_taken_for_panics() -> None:
    with pytest.raises(KeyboardInterrupt), constraint.no_panic():
        raise KeyboardInterrupt
