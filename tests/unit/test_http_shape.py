"""http/shape.py: what is too deep or too much is told from the bytes alone."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mashbox.errors import BodyTooLargeError, InvalidRequestError
from mashbox.http import shape
from mashbox.http.shape import MAX_DEPTH, check_shape

TEXT = st.text(st.sampled_from('ab[]{},:"\\é\n'), max_size=12)
VALUES = st.recursive(
    TEXT | st.integers() | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=30,
)


def depth(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(depth, inner), default=0)


def nested(levels: int) -> bytes:
    return b'{"a":[' * (levels // 2) + b"[]" * (levels % 2) + b"]}" * (levels // 2)


@given(VALUES, st.integers(1, 6), st.integers(1, 40))
def test_depth_is_found_wherever_the_text_is_cut(value: Any, limit: int, step: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shape, "MAX_DEPTH", limit)
        patch.setattr(shape, "_STEP", step)
        for ascii_only in (True, False):
            body = json.dumps(value, ensure_ascii=ascii_only).encode()
            if depth(value) <= limit:
                check_shape(body)
            else:
                with pytest.raises(InvalidRequestError, match="nested too deeply"):
                    check_shape(body)


@pytest.mark.parametrize("levels", [MAX_DEPTH - 1, MAX_DEPTH])
def test_the_deepest_text(levels: int) -> None:
    check_shape(b"[" + b",".join([nested(levels - 1)] * 50) + b"]")


@pytest.mark.parametrize("levels", [MAX_DEPTH + 1, 3000, 100_000])
def test_a_deeper_text_is_refused(levels: int) -> None:
    with pytest.raises(InvalidRequestError, match="nested too deeply"):
        check_shape(b"[" + b"[]," * 100 + nested(levels - 1) + b"]")


@pytest.mark.parametrize("text", ["[" * 500, '"[' * 500, "\\" * 501 + "[" * 500, "\\[" * 70_000])
def test_brackets_in_strings_are_text(text: str) -> None:
    check_shape(json.dumps([text, [text]]).encode())


@pytest.mark.parametrize(
    "body",
    [
        b"[" + b"[]," * 100_001 + b"1]",
        b"[" + b"1," * 300_001 + b"1]",
        b"[" + b'"",' * 150_001 + b"1]",
        b'"' + b"\\n" * 2_000_001 + b'"',
        b'"' + b"\\\\" * 1_000_001 + b'"',
        b" " * (8 * 2**20 + 1),
    ],
)
def test_what_would_take_long_to_decode_is_refused(body: bytes) -> None:
    with pytest.raises(BodyTooLargeError):
        check_shape(body)


def test_what_large_requests_hold_passes() -> None:
    part = {"type": "text", "text": 'a "quoted", [bracketed] text\n' * 10}
    call = {"id": "call_1", "type": "function", "function": {"name": "a", "arguments": '{"a": [1, 2]}'}}
    messages = [{"role": "user", "content": [part]}, {"role": "assistant", "tool_calls": [call]}] * 5000
    check_shape(json.dumps({"messages": messages}).encode())
    field = {"type": "string", "description": "What it is about, in a few words."}
    schema = {"type": "object", "properties": {f"field{i}": field for i in range(8)}}
    tool = {"type": "function", "function": {"name": "a", "description": "b", "parameters": schema}}
    check_shape(json.dumps({"tools": [tool] * 2000}).encode())
    check_shape(b'{"content": "' + b"text, and more\\n" * 1_900_000 + b'"}')
