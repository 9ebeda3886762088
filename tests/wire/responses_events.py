"""The grammar of a Responses stream. `check_stream` raises StreamFault on the first break of it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, NoReturn

Event = dict[str, Any]

FINAL_STATUS = {
    "response.completed": "completed",
    "response.incomplete": "incomplete",
    "response.failed": "failed",
}
PART_TYPES = {"message": "output_text", "reasoning": "reasoning_text"}
PAYLOADS = {
    "function_call": ("arguments", "response.function_call_arguments"),
    "custom_tool_call": ("input", "response.custom_tool_call_input"),
}
ID_PREFIXES = {"message": "msg_", "reasoning": "rs_", "function_call": "fc_", "custom_tool_call": "ctc_"}


class StreamFault(AssertionError):
    """The stream is not one that the protocol allows."""


@dataclass
class CheckedStream:
    """What a stream said. `keep_alives` counts `response.in_progress` events after the first."""

    events: list[Event]
    response: dict[str, Any]
    keep_alives: int = 0
    error: Event | None = None

    @property
    def types(self) -> list[str]:
        """The types of all events."""
        return [event["type"] for event in self.events]

    @property
    def output(self) -> list[dict[str, Any]]:
        """The final response's items."""
        items: list[dict[str, Any]] = self.response["output"]
        return items


def check_stream(sent: bytes) -> CheckedStream:
    """Check a whole stream as it was sent."""
    return check_events(read_events(sent))


def read_events(sent: bytes) -> list[Event]:
    """The events: each an `event:` line with the type and a `data:` line with the JSON, nothing else."""
    *blocks, rest = sent.split(b"\n\n")
    if rest:
        raise StreamFault(f"The stream ends inside an event: {rest!r}")
    return [_read_event(block) for block in blocks]


def _read_event(block: bytes) -> Event:
    lines = block.split(b"\n")
    if len(lines) != 2 or not lines[0].startswith(b"event: ") or not lines[1].startswith(b"data: "):
        raise StreamFault(f"Not an event line and a data line: {block!r}")
    try:
        event = json.loads(lines[1][6:])
    except ValueError:
        raise StreamFault(f"Data that is no JSON: {block!r}") from None
    if not isinstance(event, dict) or event.get("type") != lines[0][7:].decode():
        raise StreamFault(f"The event line is not the type in the data: {block!r}")
    return event


def check_events(events: list[Event]) -> CheckedStream:
    """Check events one after the other, then that there was an end."""
    checker = _Checker()
    for event in events:
        checker.take(event)
    return checker.result()


@dataclass
class _Checker:
    seen: list[Event] = field(default_factory=list)
    response_id: str = ""
    item: dict[str, Any] | None = None
    """The item that is open, as it was added."""
    part_open: bool = False
    part_count: int = 0
    text: str = ""
    text_done: bool = False
    done_items: list[dict[str, Any]] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)
    error: Event | None = None
    final: dict[str, Any] | None = None
    keep_alives: int = 0

    def take(self, event: Event) -> None:
        self.seen.append(event)
        self._check_place_in_stream(event)
        kind = event["type"]
        if kind in ("response.created", "response.in_progress"):
            self._lifecycle(event)
        elif kind in FINAL_STATUS:
            self._final(event)
        elif kind == "error":
            self._error(event)
        elif kind == "response.output_item.added":
            self._item_added(event)
        elif kind == "response.output_item.done":
            self._item_done(event)
        else:
            self._inside_item(event)

    def result(self) -> CheckedStream:
        if self.final is None:
            raise StreamFault("The stream has no end.")
        return CheckedStream(self.seen, self.final, self.keep_alives, self.error)

    def fail(self, why: str) -> NoReturn:
        raise StreamFault(f"Event {len(self.seen)}, {self.seen[-1].get('type')}: {why}. {self.seen[-1]}")

    def need(self, true: bool, why: str) -> None:
        if not true:
            self.fail(why)

    def same(self, what: str, found: Any, wanted: Any) -> None:
        if found != wanted or type(found) is not type(wanted):
            self.fail(f"{what} is {found!r}, not {wanted!r}")

    def _check_place_in_stream(self, event: Event) -> None:
        self.need(self.final is None, "comes after the end")
        self.same("sequence_number", event.get("sequence_number"), len(self.seen))
        opening = {1: "response.created", 2: "response.in_progress"}
        if wanted := opening.get(len(self.seen)):
            self.same("the type at the stream's start", event["type"], wanted)
        if self.error is not None:
            self.same("the type after error", event["type"], "response.failed")

    def _lifecycle(self, event: Event) -> None:
        response = event["response"]
        if event["type"] == "response.created":
            self.need(len(self.seen) == 1, "comes once, at the start")
            self.response_id = response["id"]
            self.need(self.response_id.startswith("resp_"), "the id has no resp_")
        elif len(self.seen) > 2:
            self.keep_alives += 1
        self._check_response(response, "in_progress")
        self.same("output", response["output"], [])
        self.same("usage", response["usage"], None)

    def _check_response(self, response: dict[str, Any], status: str) -> None:
        self.same("response.id", response["id"], self.response_id)
        self.same("response.object", response["object"], "response")
        self.same("response.status", response["status"], status)
        first = self.seen[0]["response"]
        changing = {"status", "output", "usage", "error", "incomplete_details"}
        self.same("the set of fields", set(response), set(first))
        for name in set(first) - changing:
            self.same(f"response.{name}", response[name], first[name])

    def _final(self, event: Event) -> None:
        kind, response = event["type"], event["response"]
        status = FINAL_STATUS[kind]
        self._check_response(response, status)
        self.same("output", response["output"], self.done_items)
        details = {"reason": "max_output_tokens"} if status == "incomplete" else None
        self.same("incomplete_details", response["incomplete_details"], details)
        if status == "failed":
            self.need(self.error is not None, "no error event came before it")
            self.same("the error's fields", set(response["error"]), {"code", "message"})
            self.same("usage", response["usage"], None)
        else:
            self.need(self.item is None, "an item is still open")
            self.same("error", response["error"], None)
            self._check_usage(response["usage"])
        if status == "completed":
            answers = [item for item in self.done_items if item["type"] != "reasoning"]
            self.need(bool(answers), "it has neither a message nor a call")
        self.final = response

    def _check_usage(self, usage: dict[str, Any]) -> None:
        self.same("total_tokens", usage["total_tokens"], usage["input_tokens"] + usage["output_tokens"])
        cached = usage["input_tokens_details"]["cached_tokens"]
        self.need(0 <= cached <= usage["input_tokens"], "more cached tokens than input tokens")
        thought = usage["output_tokens_details"]["reasoning_tokens"]
        self.need(0 <= thought <= usage["output_tokens"], "more reasoning tokens than output tokens")

    def _error(self, event: Event) -> None:
        fields = {"type", "sequence_number", "code", "message", "param", "request_id"}
        self.same("the fields", set(event), fields)
        self.same("request_id", event["request_id"], self.response_id)
        self.error = event

    def _item_added(self, event: Event) -> None:
        self.need(self.item is None, "an item is still open")
        self.same("output_index", event["output_index"], len(self.done_items))
        item = event["item"]
        prefix = ID_PREFIXES.get(item["type"])
        self.need(prefix is not None and item["id"].startswith(prefix), "an id that is not of its type")
        self.need(item["id"] not in self.ids, "an id that was used before")
        self.ids.add(item["id"])
        self.same("item.status", item["status"], "in_progress")
        if item["type"] in PART_TYPES:
            self.same("item.content", item["content"], [])
        else:
            self.same("item.payload", item[PAYLOADS[item["type"]][0]], "")
            self.need(item["call_id"].startswith("call_"), "a call_id without call_")
            self.need(item["call_id"] not in self.ids, "a call_id that was used before")
            self.ids.add(item["call_id"])
        self.item, self.text, self.text_done = item, "", False
        self.part_open, self.part_count = False, 0

    def _item_done(self, event: Event) -> None:
        added = self._open_item()
        self.same("output_index", event["output_index"], len(self.done_items))
        self.need(self.text_done and not self.part_open, "its text or part is not done")
        wanted = added | {"status": "completed"}
        if added["type"] in PART_TYPES:
            wanted["content"] = [self._part(added, self.text)]
            self.same("the number of parts", self.part_count, 1)
        else:
            wanted[PAYLOADS[added["type"]][0]] = self.text
        self.same("item", event["item"], wanted)
        self.done_items.append(event["item"])
        self.item = None

    def _open_item(self) -> dict[str, Any]:
        if self.item is None:
            self.fail("no item is open")
        return self.item

    @staticmethod
    def _part(item: dict[str, Any], text: str) -> dict[str, Any]:
        part = {"type": PART_TYPES[item["type"]], "text": text}
        return part | {"annotations": [], "logprobs": []} if item["type"] == "message" else part

    def _inside_item(self, event: Event) -> None:
        item = self._open_item()
        self.same("item_id", event.get("item_id"), item["id"])
        self.same("output_index", event.get("output_index"), len(self.done_items))
        if item["type"] in PART_TYPES:
            self._inside_text(event, item)
        else:
            field_name, prefix = PAYLOADS[item["type"]]
            self._delta_or_done(event, prefix, field_name)

    def _inside_text(self, event: Event, item: dict[str, Any]) -> None:
        self.same("content_index", event.get("content_index"), 0)
        kind = event["type"]
        if kind == "response.content_part.added":
            self.same("the number of parts before", self.part_count, 0)
            self.same("part", event["part"], self._part(item, ""))
            self.part_open, self.part_count = True, 1
            return
        self.need(self.part_open, "no part is open")
        if kind == "response.content_part.done":
            self.need(self.text_done, "its text is not done")
            self.same("part", event["part"], self._part(item, self.text))
            self.part_open = False
            return
        if item["type"] == "message":
            self.same("logprobs", event.get("logprobs"), [])
        self._delta_or_done(event, f"response.{PART_TYPES[item['type']]}", "text")

    def _delta_or_done(self, event: Event, prefix: str, field_name: str) -> None:
        self.need(not self.text_done, "comes after the text's end")
        if event["type"] == f"{prefix}.delta":
            self.need(isinstance(event["delta"], str) and event["delta"] != "", "an empty delta")
            self.text += event["delta"]
        elif event["type"] == f"{prefix}.done":
            self.same(field_name, event[field_name], self.text)
            self.text_done = True
        else:
            self.fail("an event that has no place in this item")
