"""Thinking told apart from text: marks never show, and any cut into tokens gives the same."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mashbox.engine.thinking import AnswerText, Part
from mashbox.engine.types import Reasoning

LETTERS = st.text(alphabet="abc", max_size=40)
STOPS = st.lists(st.text(alphabet="abc", min_size=1, max_size=4), max_size=2)
MARKS = st.builds(
    Reasoning,
    opener=st.text(alphabet="abc", max_size=4),
    closer=st.text(alphabet="abc", min_size=1, max_size=4),
    inside=st.booleans(),
)
THINK = Reasoning("<think>", "</think>")
Shown = tuple[list[Part], str | None]


def merged(parts: Sequence[Part]) -> list[Part]:
    """Neighbours of one kind as one."""
    result: list[Part] = []
    for text, thinking in parts:
        if text and result and result[-1][1] == thinking:
            result[-1] = (result[-1][0] + text, thinking)
        elif text:
            result.append((text, thinking))
    return result


def assemble(pieces: Sequence[bytes], reasoning: Reasoning | None, stops: Sequence[str] = ()) -> Shown:
    """All that comes out, as the engine's loop would see it, and the stop string."""
    answer = AnswerText(stops, reasoning)
    parts: list[Part] = []
    for piece in pieces:
        parts += answer.feed(piece)
        if answer.stop is not None:
            return merged(parts), answer.stop
    return merged([*parts, *answer.flush()]), answer.stop


def cut_at_stop(text: str, stops: Sequence[str]) -> tuple[str, str | None]:
    """The stop string that is completed first, the longest of several."""
    for end in range(1, len(text) + 1):
        found = [stop for stop in stops if text[:end].endswith(stop)]
        if found:
            longest = max(found, key=len)
            return text[: end - len(longest)], longest
    return text, None


def runs(text: str, reasoning: Reasoning) -> list[Part]:
    """The definition of blocks, slowly: every run between two marks."""
    marks = sorted({reasoning.opener, reasoning.closer} - {""}, key=len, reverse=True)
    found: list[Part] = []
    run, inside = "", reasoning.inside
    for char in text:
        run += char
        mark = next((mark for mark in marks if run.endswith(mark)), None)
        if mark is not None:
            found.append((run.removesuffix(mark), inside))
            run = ""
            inside = not inside if reasoning.opener == reasoning.closer else mark == reasoning.opener
    return [*found, (run, inside)]


def expected(text: str, reasoning: Reasoning, stops: Sequence[str]) -> Shown:
    """The definition: stop strings count within one run of text."""
    parts: list[Part] = []
    for run, thinking in runs(text, reasoning):
        shown, stop = (run, None) if thinking else cut_at_stop(run, stops)
        parts.append((shown, thinking))
        if stop is not None:
            return merged(parts), stop
    return merged(parts), None


def cuts(raw: bytes, data: st.DataObject) -> list[bytes]:
    """The bytes, cut anywhere."""
    places = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=12)))
    return [raw[a:b] for a, b in zip([0, *places], [*places, len(raw)], strict=True)]


@given(LETTERS, MARKS, STOPS, st.data())
def test_any_cut_gives_the_defined_parts(
    text: str, reasoning: Reasoning, stops: list[str], data: st.DataObject
) -> None:
    assert assemble(cuts(text.encode(), data), reasoning, stops) == expected(text, reasoning, stops)


@given(
    st.lists(st.sampled_from([b"<think>", b"</think>", b"<", b"k>", b"\xe2\x82\xac", b"\xe2", b"x"])),
    st.data(),
)
def test_bytes_cut_anywhere_read_as_when_whole(pieces: list[bytes], data: st.DataObject) -> None:
    raw = b"".join(pieces)
    text = raw.decode("utf-8", "replace")
    assert assemble(cuts(raw, data), THINK) == expected(text, THINK, [])


@given(LETTERS, MARKS, STOPS, LETTERS)
def test_what_is_shown_stays_right_whatever_follows(
    text: str, reasoning: Reasoning, stops: list[str], rest: str
) -> None:
    shown = merged(AnswerText(stops, reasoning).feed(text.encode()))
    final, _ = expected(text + rest, reasoning, stops)
    for thinking in (True, False):
        whole = "".join(text for text, kind in final if kind is thinking)
        assert whole.startswith("".join(text for text, kind in shown if kind is thinking))


@pytest.mark.parametrize(
    ("text", "inside", "parts"),
    [
        ("<think>why</think>so", False, [("why", True), ("so", False)]),
        ("why</think>\n\nso", True, [("why", True), ("so", False)]),
        ("</think>\n\nso", True, [("so", False)]),
        ("a<think>b</think>c<think>d</think>e", False, [("a", 0), ("b", 1), ("c", 0), ("d", 1), ("e", 0)]),
        ("never closed", True, [("never closed", True)]),
        ("a < b, a <thin", False, [("a < b, a <thin", False)]),
        ("the </thi</think>x", True, [("the </thi", True), ("x", False)]),
        ("<think>again</think>", True, [("again", True)]),
        ("stray</think> closer", False, [("stray closer", False)]),
    ],
)
def test_blocks(text: str, inside: bool, parts: list[tuple[str, bool]]) -> None:
    reasoning = Reasoning("<think>", "</think>", inside=inside)
    assert assemble([bytes([byte]) for byte in text.encode()], reasoning)[0] == parts
    assert assemble([text.encode()], reasoning)[0] == parts


STRICT = Reasoning("<think>", "</think>", anywhere=False, calls=("<call>",))


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("<think>a</think>b\n <think>c</think>d", [("a", True), ("b\n ", False), ("c", True), ("d", False)]),
        ("What is <think> for?", [("What is <think> for?", False)]),
        ("It ends with </think>.", [("It ends with </think>.", False)]),
        (" \n</think>so", [(" \nso", False)]),
        ("<think>a</think>\n</think>b", [("a", True), ("b", False)]),
        ('<call>{"x": "<think>"}\n<think>b', [('<call>{"x": "<think>"}\n<think>b', False)]),
        ("<think><call></think>\n<think>b", [("<call>b", True)]),
        ("<think>a</think><call>\n<think></think>", [("a", True), ("<call>\n<think></think>", False)]),
    ],
)
def test_marks_that_are_words_count_only_where_a_model_puts_them(
    text: str, parts: list[tuple[str, bool]]
) -> None:
    assert assemble([bytes([byte]) for byte in text.encode()], STRICT)[0] == parts
    assert assemble([text.encode()], STRICT)[0] == parts


@given(
    st.lists(st.sampled_from([b"<think>", b"</think>", b"<call>", b"\n", b" ", b"<", b"x", b"\xe2\x82\xac"])),
    st.data(),
)
def test_any_cut_gives_the_same_where_marks_count_only_in_places(
    pieces: list[bytes], data: st.DataObject
) -> None:
    raw = b"".join(pieces)
    assert assemble(cuts(raw, data), STRICT, ["x x"]) == assemble([raw], STRICT, ["x x"])


def test_stop_strings_sleep_while_the_model_thinks() -> None:
    shown = assemble([b"END en<think>END</think>d end"], THINK, ["end"])
    assert shown == ([("END en", False), ("END", True), ("d ", False)], "end")


def test_nothing_comes_after_a_stop_string_not_even_thinking() -> None:
    assert assemble([b"go stop<think>hm</think>"], THINK, ["stop"]) == ([("go ", False)], "stop")


def test_without_marks_everything_is_text() -> None:
    assert assemble([b"<think>x", b"</think>"], None) == ([("<think>x</think>", False)], None)


@pytest.mark.parametrize(
    ("taken", "shown"),
    [(True, [("why", True), ("{x<think>", False)]), (False, [("why", True), ("x<think>", False)])],
)
def test_a_constraint_begins_behind_the_first_closer_and_marks_are_text_from_then_on(
    taken: bool, shown: list[tuple[str, bool]]
) -> None:
    rests: list[str] = []

    def begin(rest: str) -> bool:
        rests.append(rest)
        return taken

    answer = AnswerText((), Reasoning("<think>", "</think>", inside=True), begin)
    parts = [*answer.feed(b"why</thi"), *answer.feed(b"nk>{"), *answer.feed(b"x<think>"), *answer.flush()]
    assert merged(parts) == shown
    assert rests == ["{"]
