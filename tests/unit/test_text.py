"""Token bytes to text: whole characters, stop strings, any cut into tokens."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mashbox.engine.text import TextAssembler

SMALL = st.text(alphabet="abc", max_size=30)
STOPS = st.lists(st.text(alphabet="abc", min_size=1, max_size=5), max_size=4)


def assemble(pieces: list[bytes], stops: list[str]) -> tuple[str, str | None, list[str]]:
    """Everything shown, the stop string, and the parts as they were released."""
    assembler = TextAssembler(stops)
    parts = []
    for piece in pieces:
        parts.append(assembler.feed(piece))
        if assembler.stop is not None:
            return "".join(parts), assembler.stop, parts
    parts.append(assembler.flush())
    return "".join(parts), assembler.stop, parts


def expected(text: str, stops: list[str]) -> tuple[str, str | None]:
    """The definition, slowly: the stop string that is completed first, the longest of several."""
    for end in range(1, len(text) + 1):
        found = [stop for stop in stops if text[:end].endswith(stop)]
        if found:
            longest = max(found, key=len)
            return text[: end - len(longest)], longest
    return text, None


@given(SMALL, STOPS, st.data())
def test_any_cut_gives_the_defined_text(text: str, stops: list[str], data: st.DataObject) -> None:
    raw = text.encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=10)))
    pieces = [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
    shown, stop, _ = assemble(pieces, stops)
    assert (shown, stop) == expected(text, stops)


@given(st.binary(max_size=40), STOPS, st.data())
def test_bytes_cut_anywhere_read_as_when_whole(raw: bytes, stops: list[str], data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=10)))
    pieces = [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
    shown, stop, _ = assemble(pieces, stops)
    assert (shown, stop) == expected(raw.decode("utf-8", "replace"), stops)


@given(st.text(max_size=20))
def test_no_part_ends_inside_a_character(text: str) -> None:
    _, _, parts = assemble([bytes([byte]) for byte in text.encode()], [])
    assert "".join(parts) == text
    assert "�" not in "".join(parts) or "�" in text


@given(SMALL, STOPS, st.text(alphabet="abc", max_size=6))
def test_what_is_shown_stays_right_whatever_follows(text: str, stops: list[str], rest: str) -> None:
    assembler = TextAssembler(stops)
    shown = assembler.feed(text.encode())
    assert expected(text + rest, stops)[0].startswith(shown)


def test_a_near_miss_is_released_at_once() -> None:
    assembler = TextAssembler(["<end>"])
    assert [assembler.feed(piece) for piece in (b"one <en", b"d", b" two")] == ["one ", "", "<end two"]


def test_invalid_bytes_become_the_replacement_character_and_text_goes_on() -> None:
    assert assemble([b"a\xff", b"b\xe2\x82", b"c"], [])[0] == "a�b�c"


def test_an_unfinished_character_is_flushed_once() -> None:
    assembler = TextAssembler()
    assert assembler.feed(b"x\xf0\x9f") == "x"
    assert assembler.flush() == "�"
    assert assembler.flush() == ""


def test_nothing_comes_after_a_stop_string() -> None:
    assembler = TextAssembler(["stop"])
    assert assembler.feed(b"go stop gone") == "go "
    assert (assembler.stop, assembler.feed(b"more"), assembler.flush()) == ("stop", "", "")


@pytest.mark.timeout(5)
def test_hostile_stop_strings_cost_linear_time() -> None:
    stops = ["a" * length + "b" for length in range(1, 500)]
    shown, stop, _ = assemble([b"a" * 1000] * 50, stops)
    assert (len(shown), stop) == (50_000, None)
