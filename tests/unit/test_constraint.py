"""Grammars on tokens: what may come, where it may end, and control tokens in it."""

from __future__ import annotations

import re

import numpy as np
import pytest
from llguidance import LLParserLimits

from mashbox.config import ModelConfig
from mashbox.engine.backend import Vocabulary
from mashbox.engine.constraint import GrammarError, Grammars, Matcher, pack
from mashbox.engine.types import Constraint
from tests.scripted import END, LITERALS, OPEN, TOOL, ScriptedBackend


def scripted() -> ScriptedBackend:
    return ScriptedBackend(ModelConfig("", context=1000, slots=1, threads=1), lambda _: None)


@pytest.fixture(scope="module")
def grammars() -> Grammars:
    return Grammars(scripted())


def allowed(matcher: Matcher, besides: list[int] | None = None) -> set[int]:
    """The tokens that may come next."""
    more = None if besides is None else pack(len(LITERALS), besides)
    return set(np.flatnonzero(np.isfinite(matcher.mask(np.zeros(len(LITERALS), np.float32), more))).tolist())


def follow(matcher: Matcher, text: bytes) -> None:
    for byte in text:
        assert byte in allowed(matcher)
        matcher.consume(byte)


def test_only_what_the_grammar_says_may_come_and_the_end_where_it_may_end(grammars: Grammars) -> None:
    matcher = grammars.compile(Constraint((r'start: "[" /[0-9]+/ ("," /[0-9]+/)* "]" "!"?',)))
    assert allowed(matcher) == {ord("[")}
    follow(matcher, b"[12")
    assert allowed(matcher) == {*b"0123456789,]"}
    follow(matcher, b"]")
    assert allowed(matcher) == {ord("!"), END}
    assert not matcher.stopped
    follow(matcher, b"!")
    assert matcher.stopped


def test_other_tokens_may_come_besides(grammars: Grammars) -> None:
    matcher = grammars.compile(Constraint(('start: "x"',)))
    assert allowed(matcher, [*b" \n"]) == {*b"x \n"}
    assert not matcher.takes(ord(" "))
    assert matcher.takes(ord("x"))


def test_visible_control_tokens_are_plain_text_and_others_out_of_the_question(grammars: Grammars) -> None:
    constraint = Constraint(('start: "<|tool|>" /(.|\\n)*/',))
    assert allowed(grammars.compile(constraint)) == {ord("<")}
    matcher = grammars.compile(constraint, ["<|tool|>"])
    assert allowed(matcher) == {TOOL}
    matcher.consume(TOOL)
    assert {TOOL, END, ord("q")} < allowed(matcher)
    assert OPEN not in allowed(matcher)


def test_an_end_of_turn_is_never_text(grammars: Grammars) -> None:
    matcher = grammars.compile(Constraint(('start: "a<|end|>" /(.|\\n)/',)), ["<|end|>"])
    follow(matcher, b"a<|end|>")
    assert END not in allowed(matcher)


def test_text_is_taken_whole_or_not_at_all(grammars: Grammars) -> None:
    matcher = grammars.compile(Constraint(('start: "aé" "b"',)))
    assert not matcher.take_text("aéc")
    assert matcher.take_text("aé")
    assert allowed(matcher) == {ord("b")}


def test_the_first_grammar_that_compiles_counts(grammars: Grammars) -> None:
    matcher = grammars.compile(Constraint(("start: missing", 'start: "a"', 'start: "b"')))
    assert allowed(matcher) == {ord("a")}


@pytest.mark.parametrize("grammar", ["", "start: missing", "start: /(/", "%%", '{"grammars": 3}', "\0"])
def test_what_does_not_compile_is_said_in_one_sentence(grammars: Grammars, grammar: str) -> None:
    with pytest.raises(GrammarError, match=r"^The grammar for the answer cannot be compiled: [^\n]+[^.:]\.$"):
        grammars.compile(Constraint((grammar,)))


def test_a_grammar_that_fails_at_its_first_step_does_not_count() -> None:
    grammars = Grammars(scripted())
    grammars._limits = LLParserLimits(max_lexer_states=15, verbose_errors=False)
    constraint = Constraint(("start: /(a|b)*c(a|b){20}x/", 'start: "a"'))
    assert allowed(grammars.compile(constraint)) == {ord("a")}


def test_a_grammar_may_have_more_alternatives_than_the_library_allows_by_itself(grammars: Grammars) -> None:
    calls = [f"call_{n}" for n in range(1200)]
    rules = "\n".join(f'{call}: "<{call}>" %json {{"type": "object"}} ">"' for call in calls)
    one = f"({' | '.join(calls)})"
    matcher = grammars.compile(Constraint((f"start: {one} {one}*\n{rules}",)))
    follow(matcher, b"<call_1199>{}><call_7>{")


def test_no_grammar_at_all_is_an_error(grammars: Grammars) -> None:
    with pytest.raises(GrammarError):
        grammars.compile(Constraint(()))


def test_a_token_against_the_grammar_is_an_error_that_stays(grammars: Grammars) -> None:
    matcher = grammars.compile(Constraint(('start: "a"',)))
    with pytest.raises(RuntimeError):
        matcher.consume(ord("b"))
    with pytest.raises(RuntimeError):
        allowed(matcher)


def test_a_vocabulary_without_an_end_of_turn_still_comes_to_an_end() -> None:
    backend = scripted()
    backend.vocabulary = Vocabulary(LITERALS, backend.vocabulary.control, frozenset())
    matcher = Grammars(backend).compile(Constraint(('start: "a" "b"?',)))
    follow(matcher, b"a")
    assert allowed(matcher) == {ord("b")}
    follow(matcher, b"b")
    assert matcher.stopped


def test_a_model_may_cut_forced_text_as_it_likes() -> None:
    """The space that some vocabularies put before every text must not spoil a grammar."""

    class Spaced(ScriptedBackend):
        def tokenize(self, segments: object, begins: bool = True) -> list[int]:
            return [ord(" "), *b"no"]

    backend = Spaced(ModelConfig("", context=1000, slots=1, threads=1), lambda _: None)
    follow(Grammars(backend).compile(Constraint(('start: "yes é" /[a-z]/',))), "yes éx".encode())


def test_white_space_tokens(grammars: Grammars) -> None:
    matcher = grammars.compile(Constraint(('start: "x"',)))
    more = matcher.mask(np.zeros(len(LITERALS), np.float32), grammars.white)
    white = [LITERALS[token] for token in np.flatnonzero(np.isfinite(more))]
    assert all(re.fullmatch(rb"\s|x", literal) for literal in white)
    assert {b" ", b"\n", b"\t", b"x"} <= set(white)
