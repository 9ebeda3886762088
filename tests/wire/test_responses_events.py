"""The checker of Responses streams finds what is wrong with a stream."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.wire.responses_events import Event, StreamFault, check_events, check_stream

RESPONSE = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1,
    "status": "in_progress",
    "error": None,
    "incomplete_details": None,
    "output": [],
    "usage": None,
}
USAGE = {
    "input_tokens": 3,
    "input_tokens_details": {"cached_tokens": 1},
    "output_tokens": 2,
    "output_tokens_details": {"reasoning_tokens": 1},
    "total_tokens": 5,
}
MESSAGE = {"id": "msg_1", "type": "message", "role": "assistant", "status": "in_progress", "content": []}
CALL = {
    "id": "fc_1",
    "type": "function_call",
    "status": "in_progress",
    "call_id": "call_1",
    "name": "look",
    "arguments": "",
}
IN_MESSAGE = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
IN_CALL = {"item_id": "fc_1", "output_index": 1}


def part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


DONE_MESSAGE = MESSAGE | {"status": "completed", "content": [part("ab")]}
DONE_CALL = CALL | {"status": "completed", "arguments": "{}"}
FINAL = RESPONSE | {"status": "completed", "output": [DONE_MESSAGE, DONE_CALL], "usage": USAGE}


def good() -> list[Event]:
    """A stream with a message and a call."""
    events: list[Event] = [
        {"type": "response.created", "response": RESPONSE},
        {"type": "response.in_progress", "response": RESPONSE},
        {"type": "response.output_item.added", "output_index": 0, "item": MESSAGE},
        {"type": "response.content_part.added", **IN_MESSAGE, "part": part("")},
        {"type": "response.output_text.delta", **IN_MESSAGE, "logprobs": [], "delta": "a"},
        {"type": "response.output_text.delta", **IN_MESSAGE, "logprobs": [], "delta": "b"},
        {"type": "response.output_text.done", **IN_MESSAGE, "logprobs": [], "text": "ab"},
        {"type": "response.content_part.done", **IN_MESSAGE, "part": part("ab")},
        {"type": "response.output_item.done", "output_index": 0, "item": DONE_MESSAGE},
        {"type": "response.output_item.added", "output_index": 1, "item": CALL},
        {"type": "response.function_call_arguments.delta", **IN_CALL, "delta": "{}"},
        {"type": "response.function_call_arguments.done", **IN_CALL, "arguments": "{}"},
        {"type": "response.output_item.done", "output_index": 1, "item": DONE_CALL},
        {"type": "response.completed", "response": FINAL},
    ]
    return numbered(events)


def numbered(events: list[Event]) -> list[Event]:
    return [copy.deepcopy(event) | {"sequence_number": i} for i, event in enumerate(events, 1)]


def test_a_good_stream_passes() -> None:
    told = check_events(good())
    assert told.output == [DONE_MESSAGE, DONE_CALL]
    assert (told.keep_alives, told.error) == (0, None)


@pytest.mark.parametrize("at", range(2, 14))
def test_a_keep_alive_passes_anywhere(at: int) -> None:
    events = good()
    assert check_events(numbered([*events[:at], events[1], *events[at:]])).keep_alives == 1


@pytest.mark.parametrize("at", range(14))
def test_no_event_may_be_missing(at: int) -> None:
    events = good()
    with pytest.raises(StreamFault):
        check_events(numbered(events[:at] + events[at + 1 :]))


@pytest.mark.parametrize("at", [0, *range(2, 14)])
def test_no_event_may_come_twice(at: int) -> None:
    events = good()
    with pytest.raises(StreamFault):
        check_events(numbered([*events[: at + 1], *events[at:]]))


@pytest.mark.parametrize("at", range(13))
def test_neighbours_may_not_be_swapped(at: int) -> None:
    events = good()
    events[at], events[at + 1] = events[at + 1], events[at]
    with pytest.raises(StreamFault):
        check_events(numbered(events))


def change(at: int, *path: str | int, to: Any) -> Callable[[list[Event]], None]:
    def apply(events: list[Event]) -> None:
        place: Any = events[at]
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = to

    return apply


FAULTS: list[tuple[str, Callable[[list[Event]], None]]] = [
    ("sequence_number is 0", change(0, "sequence_number", to=0)),
    ("sequence_number is 4", change(4, "sequence_number", to=4)),
    ("sequence_number is True", change(0, "sequence_number", to=True)),
    ("no resp_", change(0, "response", "id", to="x")),
    ("response.id is", change(13, "response", "id", to="resp_2")),
    ("response.created_at", change(1, "response", "created_at", to=2)),
    ("set of fields", change(13, "response", "more", to=2)),
    ("response.status", change(13, "response", "status", to="incomplete")),
    ("incomplete_details", change(13, "response", "incomplete_details", to={"reason": "x"})),
    ("usage is", change(1, "response", "usage", to=USAGE)),
    ("total_tokens", change(13, "response", "usage", "total_tokens", to=4)),
    ("cached tokens", change(13, "response", "usage", "input_tokens_details", "cached_tokens", to=4)),
    ("reasoning tokens", change(13, "response", "usage", "output_tokens_details", "reasoning_tokens", to=3)),
    ("error is", change(13, "response", "error", to={})),
    ("output is", change(13, "response", "output", 0, "content", 0, "text", to="a")),
    ("output is", change(13, "response", "output", to=[])),
    ("output_index", change(2, "output_index", to=1)),
    ("output_index", change(4, "output_index", to=1)),
    ("output_index", change(8, "output_index", to=1)),
    ("item_id", change(4, "item_id", to="msg_2")),
    ("content_index", change(4, "content_index", to=1)),
    ("an id that is not of its type", change(2, "item", "id", to="rs_1")),
    ("item.status", change(2, "item", "status", to="completed")),
    ("item.content", change(2, "item", "content", to=[part("")])),
    ("part is", change(3, "part", "text", to="a")),
    ("part is", change(7, "part", "text", to="a")),
    ("an empty delta", change(4, "delta", to="")),
    ("logprobs", change(4, "logprobs", to=None)),
    ("text is", change(6, "text", to="a")),
    ("item is", change(8, "item", "content", 0, "text", to="a")),
    ("item is", change(8, "item", "id", to="msg_2")),
    ("call_id without call_", change(9, "item", "call_id", to="x")),
    ("item.payload", change(9, "item", "arguments", to="{}")),
    ("arguments is", change(11, "arguments", to="")),
    ("item is", change(12, "item", "name", to="x")),
    ("no place in this item", change(10, "type", to="response.custom_tool_call_input.delta")),
    ("no place in this item", change(4, "type", to="response.reasoning_text.delta")),
]


@pytest.mark.parametrize(("why", "break_it"), FAULTS)
def test_faults_are_found(why: str, break_it: Callable[[list[Event]], None]) -> None:
    events = good()
    break_it(events)
    with pytest.raises(StreamFault, match=why):
        check_events(events)


def failed(**error: Any) -> list[Event]:
    told = {"code": "engine_error", "message": "No.", "param": None, "request_id": "resp_1"}
    final = RESPONSE | {"status": "failed", "error": {"code": "server_error", "message": "No."}}
    return numbered(
        [
            *good()[:6],
            {"type": "error", **told, **error},
            {"type": "response.failed", "response": final},
        ]
    )


def test_a_failed_stream_passes() -> None:
    told = check_events(failed())
    assert told.error is not None
    assert (told.error["message"], told.output) == ("No.", [])


@pytest.mark.parametrize(
    ("why", "events"),
    [
        ("request_id", failed(request_id="resp_2")),
        ("the fields", failed(more=1)),
        ("no error event", numbered([*failed()[:-2], failed()[-1]])),
        ("the type after error", numbered([*failed()[:-1], good()[1]])),
        ("no end", failed()[:-1]),
        ("after the end", numbered([*failed(), good()[1]])),
    ],
)
def test_faults_of_failed_streams_are_found(why: str, events: list[Event]) -> None:
    with pytest.raises(StreamFault, match=why):
        check_events(events)


def test_the_bytes_are_checked() -> None:
    def sent(event: Event) -> bytes:
        return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()

    whole = b"".join(map(sent, good()))
    assert check_stream(whole).response == FINAL
    for wrong in (
        whole + b"data: [DONE]\n\n",
        b": comment\n\n" + whole,
        whole[:-1],
        whole.replace(b"event: response.created", b"event: response.completed"),
        whole.replace(b"event: response.created\n", b""),
        whole.replace(b"data: {", b"data: ", 1),
    ):
        with pytest.raises(StreamFault):
            check_stream(wrong)
