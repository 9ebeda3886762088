"""Chat events as a Responses stream, and a whole answer as a response object."""

from __future__ import annotations

from typing import Any

import msgspec

from mashbox.api.responses_items import CallItem, Item, TextItem, new_call, new_message, new_reasoning
from mashbox.api.responses_object import ResponseHead, failed, finished, lacks_answer, running
from mashbox.chat.types import Begun, Block, Call, ChatEvent, Done, Text, Thinking, WholeAnswer
from mashbox.errors import RequestError
from mashbox.http.sse import named_event

_encode = msgspec.json.encode


class OpenText:
    """The text item that is being written. The constant parts of its deltas are encoded once."""

    def __init__(self, item: TextItem, index: int) -> None:
        self.item = item
        self.texts: list[str] = []
        self.place: dict[str, Any] = {"item_id": item.id, "output_index": index, "content_index": 0}
        self.more: dict[str, Any] = {"logprobs": []} if item.is_message else {}
        name = f"response.{item.part_type}.delta"
        fields = _encode({"type": name, **self.place, **self.more})
        self._before = f"event: {name}\ndata: ".encode() + fields[:-1] + b',"delta":'

    def delta(self, text: str, number: int) -> bytes:
        """The event with new text."""
        self.texts.append(text)
        return b'%b%b,"sequence_number":%d}\n\n' % (self._before, _encode(text), number)


class ResponseStream:
    """Renders a streamed response: its items one after the other, every event with the next number."""

    def __init__(self, head: ResponseHead) -> None:
        self._head = head
        self._number = 0
        self._output: list[Item] = []
        self._open: OpenText | None = None

    def start(self) -> bytes:
        """The response as it begins."""
        return self._event("response.created", response=running(self._head)) + self.keep_alive()

    def event(self, event: ChatEvent) -> bytes:
        """New text or a call as events of its item, or the end of the stream."""
        match event:
            case Text() | Thinking():
                return self._text(event) if event.text else b""
            case Call():
                return self._close() + self._call(new_call(event, self._head.tools))
            case Done():
                return self._close() + self._finish(event)
            case Begun():
                return b""

    def failed(self, error: RequestError) -> bytes:
        """The error, then the response as it failed."""
        told = self._event(
            "error", code=error.code, message=str(error), param=error.param, request_id=self._head.id
        )
        return told + self._event("response.failed", response=failed(self._head, self._output, error))

    def keep_alive(self) -> bytes:
        """That the response is in progress: a comment would not reset a client's timer."""
        return self._event("response.in_progress", response=running(self._head))

    def _text(self, event: Text | Thinking) -> bytes:
        is_message = isinstance(event, Text)
        before = b""
        if self._open is None or self._open.item.is_message != is_message:
            before = self._close()
            before += self._begin(new_message() if is_message else new_reasoning())
        assert self._open is not None
        return before + self._open.delta(event.text, self._next())

    def _begin(self, item: TextItem) -> bytes:
        self._open = OpenText(item, len(self._output))
        added = self._added(item.started())
        return added + self._event("response.content_part.added", **self._open.place, part=item.part(""))

    def _close(self) -> bytes:
        if self._open is None:
            return b""
        opened, self._open = self._open, None
        item, text = opened.item, "".join(opened.texts)
        return (
            self._event(f"response.{item.part_type}.done", **opened.place, **opened.more, text=text)
            + self._event("response.content_part.done", **opened.place, part=item.part(text))
            + self._done(item.completed(text))
        )

    def _call(self, call: CallItem) -> bytes:
        place = {"item_id": call.id, "output_index": len(self._output)}
        sent = self._added(call.started())
        if call.payload:
            sent += self._event(f"{call.event}.delta", **place, delta=call.payload)
        payload = {call.field: call.payload}
        return sent + self._event(f"{call.event}.done", **place, **payload) + self._done(call.completed())

    def _finish(self, done: Done) -> bytes:
        sent = b""
        if lacks_answer(self._output, done):
            sent = self._begin(new_message()) + self._close()
        response = finished(self._head, self._output, done)
        return sent + self._event(f"response.{response['status']}", response=response)

    def _added(self, item: Item) -> bytes:
        return self._event("response.output_item.added", output_index=len(self._output), item=item)

    def _done(self, item: Item) -> bytes:
        self._output.append(item)
        return self._event("response.output_item.done", output_index=len(self._output) - 1, item=item)

    def _event(self, name: str, **fields: Any) -> bytes:
        payload = _encode({"type": name, "sequence_number": self._next(), **fields})
        return named_event(name.encode(), payload)

    def _next(self) -> int:
        self._number += 1
        return self._number


def render_response(head: ResponseHead, whole: WholeAnswer) -> dict[str, Any]:
    """The whole answer as a response object, as the last event of its stream would have it."""
    output = [_item(block, head) for block in whole.blocks]
    if lacks_answer(output, whole.done):
        output.append(new_message().completed(""))
    return finished(head, output, whole.done)


def _item(block: Block, head: ResponseHead) -> Item:
    match block:
        case Thinking():
            return new_reasoning().completed(block.text)
        case Text():
            return new_message().completed(block.text)
        case Call():
            return new_call(block, head.tools).completed()
