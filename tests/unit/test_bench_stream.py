"""The benchmark's reader of HTTP answers: right text, right counts, right times, however it is cut."""

from __future__ import annotations

import pytest
from bench.errors import BenchError
from bench.measure import check_complete, check_fresh
from bench.stream import Read, events, read_answer, unframe
from hypothesis import given
from hypothesis import strategies as st

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
COMPLETION = (
    b'data: {"choices":[{"text":"one","finish_reason":null}]}\n\n',
    b": keep-alive\n\n",
    b'data: {"choices":[{"text":" tw\\u00f6","finish_reason":null}]}\n\n',
    b'data: {"choices":[{"text":"","finish_reason":"length"}],'
    b'"timings":{"prompt_n":3,"cache_n":4,"predicted_n":2,"prompt_ms":1.5}}\n\n',
    b"data: [DONE]\n\n",
)


def chunked(parts: tuple[bytes, ...]) -> bytes:
    return HEAD + b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


def cut(data: bytes, places: list[int]) -> list[Read]:
    """The data in pieces that end at these places, arriving at the seconds 1, 2, 3, ..."""
    ends = [*sorted({place % len(data) for place in places} - {0}), len(data)]
    starts = [0, *ends[:-1]]
    return [(float(at), data[start:end]) for at, (start, end) in enumerate(zip(starts, ends, strict=True), 1)]


@given(st.lists(st.integers(min_value=0), max_size=40))
def test_answer_does_not_depend_on_how_it_is_cut(places: list[int]) -> None:
    answer = read_answer(0.5, cut(chunked(COMPLETION), places))
    assert answer.text == "one twö"
    assert answer.finish_reason == "length"
    assert (answer.prompt_tokens, answer.cached_tokens, answer.completion_tokens) == (7, 4, 2)
    assert len(answer.arrivals) == 2


@given(st.lists(st.integers(min_value=0), max_size=40))
def test_text_arrives_with_the_read_that_completes_it(places: list[int]) -> None:
    data = chunked(COMPLETION)
    reads = cut(data, places)
    # A chunk counts once its closing line end is there.
    end = data.index(b"\r\n", data.index(b'"one"')) + 2
    received, expected = 0, 0.0
    for at, piece in reads:
        received += len(piece)
        if received >= end:
            expected = at
            break
    assert read_answer(0.0, reads).arrivals[0] == expected


def test_times() -> None:
    parts = [(float(at), part) for at, part in enumerate(COMPLETION, 10)]
    framed = [(at, b"%x\r\n%b\r\n" % (len(part), part)) for at, part in parts]
    answer = read_answer(4.0, [(9.0, HEAD), *framed, (20.0, b"0\r\n\r\n")])
    assert answer.arrivals == (10.0, 12.0)
    assert answer.seconds_to_first == 6.0
    assert answer.largest_gap(since=0.0) == 2.0
    assert answer.largest_gap(since=12.0) == 0.0


def test_chat_stream() -> None:
    answer = read_answer(
        0.0,
        [
            (
                1.0,
                chunked(
                    (
                        b'data: {"choices":[{"delta":{"role":"assistant","content":null}}]}\n\n',
                        b'data: {"choices":[{"delta":{"content":"Hi"}}]}\r\n\r\n',
                        b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\n',
                        b'data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2}}\n\n',
                    )
                ),
            )
        ],
    )
    assert (answer.text, answer.finish_reason) == ("Hi", "stop")
    assert (answer.prompt_tokens, answer.completion_tokens, answer.cached_tokens) == (9, 2, None)


@pytest.mark.parametrize("inner", ['"text":"Hi"', '"message":{"role":"assistant","content":"Hi"}'])
def test_whole_answer(inner: str) -> None:
    body = (
        f'{{"choices":[{{{inner},"finish_reason":"length"}}],'
        '"usage":{"prompt_tokens":9,"completion_tokens":2,"total_tokens":11}}'
    ).encode()
    head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body)
    answer = read_answer(0.0, [(1.0, head + body[:20]), (2.0, body[20:])])
    assert (answer.text, answer.arrivals, answer.prompt_tokens) == ("Hi", (2.0,), 9)


def test_events_of_a_stream_with_several_data_lines() -> None:
    body = [(1.0, b"event: x\ndata: a\ndata:b\n"), (2.0, b"\n")]
    assert list(events(body)) == [(2.0, b"a\nb")]


def test_error_status_is_told() -> None:
    reads = [(1.0, b"HTTP/1.1 429 Too Many\r\nContent-Length: 4\r\n\r\nbu"), (2.0, b"sy")]
    with pytest.raises(BenchError, match="429: busy"):
        list(unframe(reads))


def test_error_event_is_told() -> None:
    with pytest.raises(BenchError, match="broken"):
        read_answer(0.0, [(1.0, chunked((b'data: {"error":{"message":"broken"}}\n\n',)))])


def test_answer_without_text_is_an_error() -> None:
    with pytest.raises(BenchError, match="without any text"):
        read_answer(0.0, [(1.0, chunked((b"data: [DONE]\n\n",)))])


def test_answers_that_end_early_are_refused() -> None:
    answer = read_answer(0.0, [(1.0, chunked(COMPLETION))])
    check_complete(answer, 2)
    with pytest.raises(BenchError, match="was to have 3 tokens"):
        check_complete(answer, 3)


@pytest.mark.parametrize(("cached", "refused"), [(64, False), (65, True)])
def test_prompts_from_a_cache_are_refused(cached: int, refused: bool) -> None:
    body = b'{"choices":[{"text":"Hi"}],"timings":{"prompt_n":9,"predicted_n":1,"cache_n":%d}}' % cached
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)
    answer = read_answer(0.0, [(1.0, head + body)])
    if refused:
        with pytest.raises(BenchError, match="65 of 1000 prompt tokens came from a cache"):
            check_fresh(answer, 1000)
    else:
        check_fresh(answer, 1000)


@pytest.mark.parametrize(
    ("details", "cached"),
    [("", None), (',"prompt_tokens_details":{}', None), (',"prompt_tokens_details":{"cached_tokens":5}', 5)],
)
def test_cached_tokens_of_a_whole_answer_without_timings(details: str, cached: int | None) -> None:
    body = (
        '{"choices":[{"text":"Hi","finish_reason":"length"}],'
        f'"usage":{{"prompt_tokens":9,"completion_tokens":2{details}}}}}'
    ).encode()
    head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body)
    assert read_answer(0.0, [(1.0, head + body)]).cached_tokens == cached
