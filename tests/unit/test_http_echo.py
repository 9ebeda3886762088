"""http/echo.py: what is told back is short and cannot drive a terminal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mashbox.http.echo import MAX_ECHO, cut, echo


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("qwen3:4b", "qwen3:4b"),
        ("naïve 模型", "naïve 模型"),
        ("a\r\nb\x1b[31m\x00\x7f\x9b", r"a\r\nb\x1b[31m\x00\x7f\x9b"),
        ("a" * MAX_ECHO, "a" * MAX_ECHO),
        ("a" * 1000, "a" * (MAX_ECHO - 1) + "…"),
    ],
)
def test_echo(text: str, told: str) -> None:
    assert echo(text) == told


@given(st.text(max_size=600))
def test_any_text_becomes_one_short_line(text: str) -> None:
    told = echo(text)
    assert len(told) <= MAX_ECHO
    assert not any(ord(char) < 32 or 127 <= ord(char) < 160 for char in told)


def test_cut() -> None:
    assert cut("a\nb" * 2, 6) == "a\nba\nb"
    assert cut("abcdefg", 6) == "abcde…"
