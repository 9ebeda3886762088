"""http/body.py: JSON in, typed values or a named fault out."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request

from mashbox.errors import BodyTooLargeError, InvalidRequestError, MediaTypeError
from mashbox.http.body import MAX_BODY_BYTES, decode_json, mend_surrogates, read_body, require_json
from mashbox.http.body_budget import BodyBudget, BodyShare


class Inner(msgspec.Struct):
    role: str


class Sample(msgspec.Struct):
    items: Annotated[list[Inner], msgspec.Meta(min_length=1)]
    ratio: Annotated[float, msgspec.Meta(ge=0, le=4)] | None = None
    mode: Literal["on", "off"] = "on"
    extra: Any = None


DECODER = msgspec.json.Decoder(Sample)
TEXT = msgspec.json.Decoder(str)


def post(headers: dict[str, str], *chunks: bytes) -> Request:
    pending = [{"type": "http.request", "body": chunk, "more_body": True} for chunk in chunks]
    pending.append({"type": "http.request", "body": b"", "more_body": False})

    async def receive() -> dict[str, Any]:
        return pending.pop(0)

    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    return Request({"type": "http", "method": "POST", "headers": raw}, receive)


@pytest.mark.parametrize(
    ("body", "param", "words"),
    [
        (b"", None, "empty"),
        (b" \n", None, "empty"),
        (b"{", None, "not valid JSON"),
        (b"hello", None, "not valid JSON"),
        (b'{"items": [{"role": "a"}]} x', None, "not valid JSON"),
        (b'{"items": [{"role": "\xff"}]}', None, "not valid JSON"),
        (b'{"items": [{"role": "a"}], "ratio": NaN}', None, "not valid JSON"),
        (b'{"items": [{"role": "a"}], "extra": ' + b"[" * 9000 + b"]" * 9000 + b"}", None, "too deeply"),
        (b'{"items": [{"role": "a"}], "unknown": ' + b"[" * 9000 + b"]" * 9000 + b"}", None, "too deeply"),
        (b"[]", None, "expected object, got array"),
        (b"{}", "items", "Missing required field 'items'"),
        (b'{"items": [{}]}', "items[0].role", "Missing required field 'items[0].role'"),
        (b'{"items": [{"role": 5}]}', "items[0].role", "expected string, got integer"),
        (b'{"items": []}', "items", "length >= 1"),
        (b'{"items": [{"role": "a"}], "ratio": "1"}', "ratio", "expected number, got string"),
        (b'{"items": [{"role": "a"}], "ratio": 4.1}', "ratio", "expected number <= 4.0"),
        (b'{"items": [{"role": "a"}], "mode": "Off"}', "mode", "'mode': 'Off' is not a known value."),
        (b'{"items": [{"role": "a"}], "ratio": 1e999}', "ratio", "number out of range"),
    ],
)
def test_fault_is_named(body: bytes, param: str | None, words: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        decode_json(body, DECODER)
    assert caught.value.param == param
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("escaped", "text"),
    [
        (rb'"a\ud800b"', "a\ufffdb"),
        (rb'"a\udc00b"', "a\ufffdb"),
        (rb'"\ud800\ud800"', "\ufffd\ufffd"),
        (rb'"\ud800\ud83d\ude00"', "\ufffd\U0001f600"),
        (rb'"\ud83d\ude00\ude00"', "\U0001f600\ufffd"),
        (rb'"\\ud800 \ud83D\uDE00 \uD800"', "\\ud800 \U0001f600 \ufffd"),
        (rb'"\\\ud800\n"', "\\\ufffd\n"),
    ],
)
def test_half_surrogate_pairs_are_read_as_replacement_characters(escaped: bytes, text: str) -> None:
    assert decode_json(escaped, TEXT) == text


@given(st.text(st.characters(exclude_categories=())))
def test_any_escaped_text_is_readable(text: str) -> None:
    paired = text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    expected = "".join("\ufffd" if "\ud800" <= char <= "\udfff" else char for char in paired)
    assert decode_json(json.dumps(text).encode(), TEXT) == expected


@given(st.text())
def test_valid_text_is_not_touched(text: str) -> None:
    for body in (json.dumps(text).encode(), json.dumps(text, ensure_ascii=False).encode()):
        assert mend_surrogates(body) == body
        assert decode_json(body, TEXT) == text


@pytest.mark.parametrize(
    "kind", ["application/json", "Application/JSON; charset=utf-8", 'application/json ;x=y; Charset = "UTF8"']
)
def test_json_content_types(kind: str) -> None:
    require_json(post({"content-type": kind}))


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"content-type": "text/plain"},
        {"content-type": "application/jsonp"},
        {"content-type": "application/json; charset=latin-1"},
        {"content-type": "application/json", "content-encoding": "gzip"},
    ],
)
def test_other_content_types_are_refused(headers: dict[str, str]) -> None:
    with pytest.raises(MediaTypeError) as caught:
        require_json(post(headers))
    assert caught.value.status == 415


def drive(request: Request, limit: int) -> bytes:
    """Run read_body, which never waits here."""
    reading = read_body(request, BodyShare(BodyBudget(), ""), limit)
    with pytest.raises(StopIteration) as done:
        reading.send(None)
    return bytes(done.value.value)


def test_body_is_read_in_pieces_up_to_the_limit() -> None:
    assert drive(post({}, b"ab", b"cd"), 4) == b"abcd"


@pytest.mark.parametrize("request_", [post({"content-length": "5"}), post({}, b"abc", b"de")])
def test_longer_bodies_are_refused(request_: Request) -> None:
    with pytest.raises(BodyTooLargeError) as caught:
        read_body(request_, BodyShare(BodyBudget(), ""), 4).send(None)
    assert caught.value.status == 413


@pytest.mark.parametrize("filler", [b"a", rb"\u00e9", rb"\n", rb"\ud83d\ude00"])
@pytest.mark.parametrize("count", [16_383, 16_384, 50_000])
def test_large_bodies_are_mended_wherever_a_match_is_cut(filler: bytes, count: int) -> None:
    body = b'"' + filler * count + rb"\ud83d" + b'"'
    assert mend_surrogates(body) == b'"' + filler * count + rb"\ufffd" + b'"'


def test_a_half_at_the_end_of_the_largest_body_is_mended() -> None:
    text = rb"\n" * (MAX_BODY_BYTES // 2 - 8)
    assert mend_surrogates(text + rb"\ud83d") == text + rb"\ufffd"
    assert mend_surrogates(rb"\ud83d" * 1000 + text[-1000:]) == rb"\ufffd" * 1000 + text[-1000:]


def test_bodies_without_surrogates_are_not_mended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mashbox.http.body.mend_surrogates", pytest.fail)
    with pytest.raises(InvalidRequestError):
        decode_json(b'"' + rb"\u00e9" * 10, TEXT)
