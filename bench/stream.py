"""From the bytes a server sent, and when they came, to an answer. Pure; runs after the measurement."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from bench.errors import BenchError

Read = tuple[float, bytes]
"""When some bytes arrived (seconds, monotonic) and which."""


class Message(msgspec.Struct):
    """The text of a chat answer, or new text of it."""

    content: str | None = None


class Choice(msgspec.Struct):
    """`text` on the completions route; on the chat route `delta` when streamed, else `message`."""

    text: str | None = None
    delta: Message | None = None
    message: Message | None = None
    finish_reason: str | None = None

    @property
    def new_text(self) -> str:
        """The text in this event, on whichever route; may be empty."""
        message = self.delta or self.message
        return self.text or (message.content if message else None) or ""


class PromptDetails(msgspec.Struct):
    """Of the prompt's tokens, those that came from a cache."""

    cached_tokens: int | None = None


class Usage(msgspec.Struct):
    """Token counts in OpenAI's words."""

    prompt_tokens: int
    completion_tokens: int
    prompt_tokens_details: PromptDetails | None = None


class Timings(msgspec.Struct):
    """Token counts in llama-server's words; the prompt's are split by whether the cache had them."""

    prompt_n: int
    predicted_n: int
    cache_n: int = 0


class Chunk(msgspec.Struct):
    """One event of a streamed answer, or a whole answer; only what a benchmark reads."""

    choices: list[Choice] = []
    usage: Usage | None = None
    timings: Timings | None = None
    error: Any = None


_DECODER = msgspec.json.Decoder(Chunk)


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer. Times in seconds on the monotonic clock; `None` where the server did not say."""

    sent: float
    """When its request was sent."""
    arrivals: tuple[float, ...]
    """When each chunk with text came."""
    text: str
    finish_reason: str | None
    prompt_tokens: int | None
    completion_tokens: int | None
    cached_tokens: int | None

    @property
    def seconds_to_first(self) -> float:
        """From the request to the first text."""
        return self.arrivals[0] - self.sent

    def largest_gap(self, since: float) -> float:
        """The longest silence that ended after `since`, in seconds."""
        pairs = zip(self.arrivals, self.arrivals[1:], strict=False)
        return max((later - earlier for earlier, later in pairs if later > since), default=0.0)


def read_answer(sent: float, reads: Sequence[Read]) -> Answer:
    """The answer in a complete HTTP/1.1 response. Raises BenchError for an error or an empty answer."""
    arrivals: list[float] = []
    texts: list[str] = []
    finish_reason: str | None = None
    usage: Usage | None = None
    timings: Timings | None = None
    for at, payload in events(unframe(reads)):
        chunk = _DECODER.decode(payload)
        if chunk.error is not None:
            raise BenchError(f"The server answered with an error: {chunk.error}")
        for choice in chunk.choices:
            if choice.new_text:
                arrivals.append(at)
                texts.append(choice.new_text)
            finish_reason = choice.finish_reason or finish_reason
        usage, timings = chunk.usage or usage, chunk.timings or timings
    if not arrivals:
        raise BenchError("The server answered without any text.")
    return Answer(
        sent=sent,
        arrivals=tuple(arrivals),
        text="".join(texts),
        finish_reason=finish_reason,
        prompt_tokens=_prompt_tokens(usage, timings),
        completion_tokens=usage.completion_tokens if usage else timings.predicted_n if timings else None,
        cached_tokens=_cached_tokens(usage, timings),
    )


def _prompt_tokens(usage: Usage | None, timings: Timings | None) -> int | None:
    if usage is not None:
        return usage.prompt_tokens
    return timings.prompt_n + timings.cache_n if timings else None


def _cached_tokens(usage: Usage | None, timings: Timings | None) -> int | None:
    if timings is not None:
        return timings.cache_n
    details = usage.prompt_tokens_details if usage else None
    return details.cached_tokens if details else None


def head_end(data: bytes) -> int:
    """Where the body begins; 0 while the response's head is incomplete."""
    return data.find(b"\r\n\r\n") + 4 if b"\r\n\r\n" in data else 0


def content_length(head: bytes) -> int | None:
    """The body's length in bytes; None when the body comes in chunks."""
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.partition(b":")[2])
    return None


def unframe(reads: Sequence[Read]) -> Iterator[Read]:
    """The body without HTTP's framing: each piece with the time its last byte came.

    Raises BenchError when the status is not 200.
    """
    data, chunked, in_body = b"", False, False
    for at, received in reads:
        data += received
        if not in_body:
            start = head_end(data)
            if not start:
                continue
            _check_status(data[:start], reads)
            chunked, in_body = content_length(data[:start]) is None, True
            data = data[start:]
        pieces, data = _chunks(data) if chunked else ([data], b"")
        yield from ((at, piece) for piece in pieces if piece)


def _check_status(head: bytes, reads: Sequence[Read]) -> None:
    status = head.split(b" ", 2)[1]
    if status != b"200":
        whole = b"".join(received for _, received in reads)
        body = whole[head_end(whole) :].decode(errors="replace")
        raise BenchError(f"The server answered with status {status.decode()}: {body}")


def _chunks(data: bytes) -> tuple[list[bytes], bytes]:
    """The complete chunks at the start of a chunked body, and the rest."""
    chunks: list[bytes] = []
    while (line_end := data.find(b"\r\n")) >= 0:
        size = int(data[:line_end].partition(b";")[0], 16)
        end = line_end + 2 + size
        if len(data) < end + 2:
            break
        chunks.append(data[line_end + 2 : end])
        data = data[end + 2 :]
    return chunks, data


def events(body: Iterable[Read]) -> Iterator[Read]:
    """The JSON payloads in a body: of each server-sent event but `[DONE]`, or the one plain object."""
    buffer, last = b"", 0.0
    for at, piece in body:
        buffer, last = buffer + piece, at
        if buffer.startswith(b"{"):
            continue
        *complete, buffer = buffer.replace(b"\r\n", b"\n").split(b"\n\n")
        for event in complete:
            if (payload := _payload(event)) not in (b"", b"[DONE]"):
                yield at, payload
    if buffer.startswith(b"{"):
        yield last, buffer


def _payload(event: bytes) -> bytes:
    """The data lines of an event, joined; empty for comments."""
    lines = (line for line in event.split(b"\n") if line.startswith(b"data:"))
    return b"\n".join(line.removeprefix(b"data:").removeprefix(b" ") for line in lines)
