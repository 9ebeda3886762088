"""One streamed chat request and all that came back."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import Any

import httpx2 as httpx
import msgspec

from soak.conversation import Message

CHAT = "/v1/chat/completions"
DONE = "[DONE]"


@dataclass(frozen=True, slots=True)
class Ask:
    """What is asked; greedy unless there is a temperature."""

    messages: tuple[Message, ...]
    max_tokens: int
    temperature: float = 0.0
    seed: int = 0

    def body(self) -> dict[str, Any]:
        """The request's fields."""
        return {
            "messages": [{"role": role, "content": content} for role, content in self.messages],
            "max_tokens": self.max_tokens,
            "temperature": self.temperature,
            "seed": self.seed,
            "stream": True,
        }


@dataclass(frozen=True, slots=True)
class Patience:
    """When a client goes away: after some seconds, after some pieces of text, or never.

    With no piece at all it goes when the request is accepted.
    """

    seconds: float | None = None
    pieces: int | None = None


STAYS = Patience()


@dataclass(frozen=True, slots=True)
class Counts:
    """The answer's `timings`: prompt tokens computed and reused, and new tokens."""

    prompt_n: int
    cache_n: int
    predicted_n: int


@dataclass(slots=True)
class Reply:
    """What has come back so far."""

    texts: list[str] = field(default_factory=list)
    endings: list[str] = field(default_factory=list)
    """Each finish reason, error and end of stream, in order."""
    counts: Counts | None = None

    @property
    def text(self) -> str:
        """The answer."""
        return "".join(self.texts)

    @property
    def whole(self) -> bool:
        """Whether it ended well and exactly once."""
        return self.endings in (["stop", DONE], ["length", DONE])

    def take(self, payload: str) -> None:
        """One event of the stream."""
        if payload == DONE:
            self.endings.append(DONE)
            return
        event: dict[str, Any] = msgspec.json.decode(payload)
        if "error" in event:
            self.endings.append(f"error: {event['error']}")
            return
        if timings := event.get("timings"):
            self.counts = msgspec.convert(timings, Counts)
        for choice in event["choices"]:
            if text := choice["delta"].get("content"):
                self.texts.append(text)
            if reason := choice["finish_reason"]:
                self.endings.append(reason)


async def exchange(client: httpx.AsyncClient, ask: Ask, patience: Patience = STAYS) -> Reply:
    """Ask, and read until the stream ends or patience does; the connection is closed then."""
    reply = Reply()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(patience.seconds):
            async with client.stream("POST", CHAT, json=ask.body()) as response:
                await _read(response, reply, patience.pieces)
    return reply


async def _read(response: httpx.Response, reply: Reply, pieces: int | None) -> None:
    if response.status_code != 200:
        body = (await response.aread()).decode(errors="replace")
        reply.endings.append(f"status {response.status_code}: {body}")
        return
    lines = response.aiter_lines()
    while pieces is None or len(reply.texts) < pieces:
        if (line := await anext(lines, None)) is None:
            return
        if line.startswith("data: "):
            reply.take(line.removeprefix("data: "))
