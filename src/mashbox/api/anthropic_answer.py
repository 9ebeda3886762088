"""Chat events as an Anthropic message, streamed or whole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from mashbox.api.ids import new_id
from mashbox.api.text_frame import HOLE, TextFrame
from mashbox.chat.types import Begun, Block, Call, ChatEvent, Done, Text, Thinking, WholeAnswer
from mashbox.engine.types import FinishReason
from mashbox.errors import RequestError
from mashbox.http.anthropic_errors import error_body
from mashbox.http.sse import named_event

SIGNATURE = "mashbox-local"
"""The signature of all thinking blocks: official clients want one, here it proves nothing."""

STOP_REASONS = {
    FinishReason.STOP: "end_turn",
    FinishReason.STOP_STRING: "stop_sequence",
    FinishReason.LENGTH: "max_tokens",
}


@dataclass(frozen=True, slots=True)
class MessageHead:
    """What is known of a message before its first token."""

    id: str
    model: str


def new_head(request_id: str, model: str) -> MessageHead:
    """The head of a message that starts now; its id is found in the engine's log."""
    return MessageHead("msg_" + request_id, model)


class MessageUsage(msgspec.Struct):
    """Tokens of one message. `input_tokens` are those of the prompt that were not in the cache."""

    input_tokens: int
    cache_creation_input_tokens: int
    cache_read_input_tokens: int
    output_tokens: int


def message_usage(prompt_tokens: int, cached_tokens: int, output_tokens: int) -> MessageUsage:
    """The engine's counts in Anthropic's words."""
    return MessageUsage(prompt_tokens - cached_tokens, 0, cached_tokens, output_tokens)


def done_usage(done: Done) -> MessageUsage:
    """The counts of a complete message."""
    usage = done.usage
    return message_usage(usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens)


def stop_fields(done: Done) -> dict[str, Any]:
    """Why the message ended: "tool_use" exactly when there are calls."""
    reason = "tool_use" if done.calls else STOP_REASONS[done.reason]
    return {"stop_reason": reason, "stop_sequence": done.stop if reason == "stop_sequence" else None}


def render_message(head: MessageHead, whole: WholeAnswer) -> dict[str, Any]:
    """The whole answer as a message object."""
    content = [content_block(block) for block in whole.blocks]
    return _message(head, content, done_usage(whole.done)) | stop_fields(whole.done)


def content_block(block: Block) -> dict[str, Any]:
    """A part of an answer as a content block."""
    match block:
        case Text():
            return {"type": "text", "text": block.text}
        case Thinking():
            return {"type": "thinking", "thinking": block.text, "signature": SIGNATURE}
        case Call():
            # The text of the arguments as it is: decoded and encoded, numbers could change.
            return tool_use(block.name, msgspec.Raw(block.arguments.encode()))


def tool_use(name: str, arguments: msgspec.Raw) -> dict[str, Any]:
    """A call with a new id."""
    return {"type": "tool_use", "id": new_id("toolu_"), "name": name, "input": arguments}


def _message(head: MessageHead, content: list[dict[str, Any]], usage: MessageUsage) -> dict[str, Any]:
    return {
        "id": head.id,
        "type": "message",
        "role": "assistant",
        "model": head.model,
        "content": content,
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage,
    }


class MessageStream:
    """Renders a streamed message. The constant parts of a delta are encoded once per block."""

    def __init__(self, head: MessageHead) -> None:
        self._head = head
        self._index = 0
        self._open: type[Text | Thinking] | None = None
        self._frame: TextFrame

    def start(self) -> bytes:
        """Nothing: the first event carries counts that are not known yet."""
        return b""

    def event(self, event: ChatEvent) -> bytes:
        """The start of the message, a piece of a block, a whole call, or the end."""
        match event:
            case Text() | Thinking():
                return self._piece(event)
            case Call():
                return self._close_block() + self._call(event)
            case Begun():
                usage = message_usage(event.prompt_tokens, event.cached_tokens, 0)
                return _event("message_start", message=_message(self._head, [], usage)) + self.keep_alive()
            case Done():
                return self._close_block() + _finish(event)

    def failed(self, error: RequestError) -> bytes:
        """An error event; nothing follows it."""
        return named_event(b"error", msgspec.json.encode(error_body(error, self._head.id)))

    def keep_alive(self) -> bytes:
        """A ping, which may stand anywhere."""
        return _event("ping")

    def _piece(self, piece: Text | Thinking) -> bytes:
        if not piece.text:
            return b""
        kind = type(piece)
        opened = b"" if self._open is kind else self._close_block() + self._open_block(kind)
        return opened + self._frame.fill(piece.text)

    def _open_block(self, kind: type[Text | Thinking]) -> bytes:
        if kind is Text:
            block = {"type": "text", "text": ""}
            delta = {"type": "text_delta", "text": HOLE}
        else:
            block = {"type": "thinking", "thinking": "", "signature": ""}
            delta = {"type": "thinking_delta", "thinking": HOLE}
        self._open = kind
        self._frame = TextFrame(self._delta(delta))
        return self._start(block)

    def _close_block(self) -> bytes:
        if self._open is None:
            return b""
        signature = b""
        if self._open is Thinking:
            signature = self._delta({"type": "signature_delta", "signature": SIGNATURE})
        self._open = None
        return signature + self._stop()

    def _call(self, call: Call) -> bytes:
        start = self._start(tool_use(call.name, msgspec.Raw(b"{}")))
        delta = self._delta({"type": "input_json_delta", "partial_json": call.arguments})
        return start + delta + self._stop()

    def _start(self, block: dict[str, Any]) -> bytes:
        return _event("content_block_start", index=self._index, content_block=block)

    def _delta(self, delta: dict[str, Any]) -> bytes:
        return _event("content_block_delta", index=self._index, delta=delta)

    def _stop(self) -> bytes:
        stop = _event("content_block_stop", index=self._index)
        self._index += 1
        return stop


def _finish(done: Done) -> bytes:
    delta = _event("message_delta", delta=stop_fields(done), usage=done_usage(done))
    return delta + _event("message_stop")


def _event(kind: str, **fields: Any) -> bytes:
    return named_event(kind.encode(), msgspec.json.encode({"type": kind, **fields}))
