"""chat/formats: reading takes time in proportion to the text, whatever it is.

Bounds are processor time and far above what is needed; anything quadratic takes minutes.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest

from mashbox.chat.formats.choose import FORMAT_NAMES
from mashbox.chat.types import Call
from tests.unit.formats_support import read, reader

SIZE = 1_000_000
WHOLE_S = 4.0
PIECES_S = 15.0

BODIES: dict[str, tuple[str, str]] = {  # before and after a JSON object, by format
    "hermes": ('<tool_call>{"name": "note", "arguments": ', "}</tool_call>"),
    "plain": ('<tool_call>{"name": "note", "arguments": ', "}</tool_call>"),
    "qwen3-coder": ("<tool_call><function=note><parameter=x>", "</parameter></function></tool_call>"),
    "llama3": ('{"name": "note", "parameters": ', "}"),
    "mistral": ('[TOOL_CALLS][{"name": "note", "arguments": ', "}]"),
    "mistral-args": ("[TOOL_CALLS]note[ARGS]", ""),
    "deepseek-v3": ("<｜tool▁call▁begin｜>function<｜tool▁sep｜>note\n```json\n", "\n```"),  # noqa: RUF001
    "deepseek-v3.1": ("<｜tool▁call▁begin｜>note<｜tool▁sep｜>", ""),  # noqa: RUF001
    "glm": ("<tool_call>note<arg_key>x</arg_key><arg_value>", "</arg_value></tool_call>"),
    "lfm2": ("<|tool_call_start|>[note(x=", ")]"),
    "harmony": ("<|channel|>commentary to=functions.note<|message|>", ""),
}
QUOTES = "{" + '"": "", ' * (SIZE // 8) + '"a": 1}'
ESCAPES = '{"a": "' + '\\"\\\\\\n' * (SIZE // 6) + '"}'


def timed(name: str, pieces: Sequence[str], seconds: float) -> int:
    """Read an answer within the time; how many calls it makes."""
    made = reader(name)
    start = time.process_time()
    blocks = read(made, pieces)
    assert time.process_time() - start < seconds
    return sum(isinstance(block, Call) for block in blocks)


def filled(unit: str) -> str:
    return unit * (SIZE // len(unit))


@pytest.mark.parametrize("name", FORMAT_NAMES)
def test_big_calls(name: str) -> None:
    before, after = BODIES[name]
    assert timed(name, [before + QUOTES + after], WHOLE_S) == 1
    assert timed(name, [before + ESCAPES + after], WHOLE_S) == 1


@pytest.mark.parametrize("name", FORMAT_NAMES)
def test_openers_and_no_more(name: str) -> None:
    before, _ = BODIES[name]
    for unit in (before, before[:12], before + '{"', f"{before}{{}} ", "{", "<", "[", " "):
        timed(name, [filled(unit)], WHOLE_S)


@pytest.mark.parametrize("name", FORMAT_NAMES)
def test_a_body_that_never_ends(name: str) -> None:
    before, after = BODIES[name]
    for unit in ("{", "[", '["', '{"a":', "\\", " ", "<", "</", after or "x", after[:13] or "y"):
        assert timed(name, [before + filled(unit)], WHOLE_S) < 2


@pytest.mark.parametrize("name", ["hermes", "qwen3-coder", "lfm2", "harmony"])
def test_character_by_character(name: str) -> None:
    before, after = BODIES[name]
    assert timed(name, list(before + ESCAPES + after), PIECES_S) == 1


def test_a_header_that_never_ends() -> None:
    for unit in (" ", "x ", "to=", "<|channel|>", "<|constrain|> "):
        timed("harmony", [f"<|channel|>{filled(unit)}x"], WHOLE_S)


def test_openers_character_by_character() -> None:
    assert timed("hermes", list(filled("<tool_call>")), PIECES_S) == 0
