"""The client for both sides. It shares the cores with the servers, so while an answer runs it only
waits, reads and notes the time; `stream.py` looks into the bytes afterwards.
"""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import msgspec

from bench.errors import BenchError
from bench.process import HOST
from bench.stream import Answer, Read, content_length, head_end, read_answer

ANSWER_S = 300.0
"""How long an answer may take before the benchmark gives up."""

_LAST_CHUNK = b"\r\n0\r\n\r\n"
_READ_BYTES = 1 << 16


class Route(Enum):
    """Which of the two OpenAI routes the prompts go to."""

    COMPLETIONS = "completions"
    CHAT = "chat"

    @property
    def path(self) -> str:
        """The route's path on both servers."""
        return "/v1/completions" if self is Route.COMPLETIONS else "/v1/chat/completions"


@dataclass(frozen=True, slots=True)
class Turn:
    """A message of a conversation; its role is system, user or assistant."""

    role: str
    text: str


@dataclass(frozen=True, slots=True)
class Ask:
    """One greedy request. `max_tokens` is the number of tokens the answer is meant to have.

    `before` are the messages before the prompt, which is the user's. Without a template they are one text
    with a line each, but for the assistant's, which goes on where it was written.
    """

    prompt: str
    max_tokens: int
    stream: bool = True
    before: tuple[Turn, ...] = ()

    @property
    def turns(self) -> tuple[Turn, ...]:
        """All messages."""
        return (*self.before, Turn("user", self.prompt))

    @property
    def text(self) -> str:
        """All messages as one text."""
        pieces = [turn.text if turn.role == "assistant" else f"\n{turn.text}" for turn in self.turns]
        return "".join(pieces).removeprefix("\n")

    def encode(self, route: Route) -> bytes:
        """The whole HTTP request."""
        body: dict[str, Any] = {
            "max_tokens": self.max_tokens,
            "temperature": 0,
            "stream": self.stream,
        }
        if route is Route.COMPLETIONS:
            body["prompt"] = self.text
        else:
            body["messages"] = [{"role": turn.role, "content": turn.text} for turn in self.turns]
            if self.stream:
                body["stream_options"] = {"include_usage": True}
        payload = msgspec.json.encode(body)
        head = (
            f"POST {route.path} HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(payload)}\r\n\r\n"
        )
        return head.encode() + payload


class Exchange:
    """A request under way and the bytes that have come back so far."""

    def __init__(self, connection: socket.socket, request: bytes) -> None:
        self.connection = connection
        self.done = False
        self.chunks = 0
        """Pieces of stream seen so far; a quick count to steer by, not a result."""
        self._reads: list[Read] = []
        self._received = 0
        self._tail = b""
        self._head_read = False
        self._expected: int | None = None
        self.sent = time.monotonic()
        connection.sendall(request)

    def take(self) -> None:
        """Read what has come. Raises BenchError when the server hangs up in the middle."""
        data = self.connection.recv(_READ_BYTES)
        self._reads.append((time.monotonic(), data))
        if not data:
            raise BenchError("The server closed the connection in the middle of an answer.")
        self.chunks += data.count(b"data:")
        self._received += len(data)
        self._tail = (self._tail + data)[-len(_LAST_CHUNK) :]
        if not self._head_read:
            self._read_head()
        self.done = self._tail == _LAST_CHUNK if self._expected is None else self._received >= self._expected

    def answer(self) -> Answer:
        """The answer, once `done`."""
        return read_answer(self.sent, self._reads)

    def _read_head(self) -> None:
        """Learn how the answer ends: after a known number of bytes, or with an empty chunk."""
        received = b"".join(read for _, read in self._reads)
        if start := head_end(received):
            self._head_read = True
            length = content_length(received[:start])
            self._expected = None if length is None else start + length


class Client:
    """Talks to one server, each request on a connection of its own that is open before its time starts.

    llama-server hangs up after every streamed answer, so keeping connections would help one side only.
    `must_reuse` is for the scenarios: whether this server must not compute again what it has computed.
    """

    def __init__(self, port: int, route: Route, must_reuse: bool = False) -> None:
        self.must_reuse = must_reuse
        self._port = port
        self._route = route
        self._selector = selectors.DefaultSelector()
        self._under_way: set[Exchange] = set()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exception: object) -> None:
        for exchange in self._under_way:
            exchange.connection.close()
        self._selector.close()

    def start(self, ask: Ask) -> Exchange:
        """Send a request; `run` reads its answer."""
        connection = socket.create_connection((HOST, self._port))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        exchange = Exchange(connection, ask.encode(self._route))
        self._selector.register(exchange.connection, selectors.EVENT_READ, exchange)
        self._under_way.add(exchange)
        return exchange

    def run(self, until: Callable[[], bool]) -> None:
        """Read whatever comes until `until()`. Raises BenchError after 300 s."""
        deadline = time.monotonic() + ANSWER_S
        while not until():
            if time.monotonic() > deadline:
                raise BenchError(f"No complete answer within {ANSWER_S:.0f} s.")
            for key, _ in self._selector.select(timeout=1.0):
                exchange: Exchange = key.data
                exchange.take()
                if exchange.done:
                    self._finish(exchange)

    def ask_all(self, asks: Sequence[Ask]) -> list[Answer]:
        """Send all requests at once; their answers, in the same order."""
        exchanges = [self.start(ask) for ask in asks]
        self.run(lambda: all(exchange.done for exchange in exchanges))
        return [exchange.answer() for exchange in exchanges]

    def ask(self, ask: Ask) -> Answer:
        """Send one request and wait for its answer."""
        return self.ask_all([ask])[0]

    def _finish(self, exchange: Exchange) -> None:
        self._selector.unregister(exchange.connection)
        self._under_way.discard(exchange)
        exchange.connection.close()
