"""One request as the server sees it: from its place in the line to its end."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol

from mashbox.engine.types import Count, Finished, Started, Submit, TextDelta
from mashbox.errors import EngineFault, RequestError

Event = Started | TextDelta | Finished


class Desk(Protocol):
    """Who a stream tells what its consumer wants."""

    def run(self, stream: EventStream, command: Submit | Count) -> None: ...

    def run_again(self, stream: EventStream) -> None: ...

    def forget(self, stream: EventStream) -> None: ...


class EventStream:
    """The events of one request: text, then `Finished`; or an error raised once.

    An `EngineFault` need not be the end: `again` starts the request anew, if it may be.
    Whoever has one closes it.
    """

    def __init__(self, request_id: str, tenant: str, desk: Desk, begun: float, is_answer: bool) -> None:
        self.id = request_id
        self.tenant = tenant
        self.is_answer = is_answer
        """Not a count."""
        self.begun = begun
        """Monotonic time of the request's arrival."""
        self.prompt_tokens = 0
        self._desk = desk
        self._events: deque[Event | RequestError] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._ended = False
        self.accepted = False
        """A worker has taken it; from then on its events come."""
        # The desk's notes.
        self.frame = b""
        """The command as it is sent; empty until the request is known."""
        self.wanted = True
        """Its consumer waits for it to run; not so after a fault, until `again`."""
        self.sent = False
        """The present worker has it."""
        self.prepared = False
        """The present worker has accepted it."""
        self.has_slot = False
        self.had_slot = False
        """It had one when its last run failed."""
        self.pieces = 0
        """Pieces of text that came of the present run."""
        self.reached = 0
        """Pieces of text that came of the run before it."""
        self.told_text = False
        """The observer knows of its first text."""
        self.tries = 0
        """Runs that failed."""
        self.suspect = False
        """A worker ended while it worked on this; until it comes further, no other suspect runs."""

    async def run(self, command: Submit | Count) -> None:
        """Send the request, under this stream's id, and wait until its prompt is accepted (or counted).

        Raises ContextLengthError, InvalidRequestError or EngineError.
        """
        self._desk.run(self, command)
        while not self.accepted:
            if not self._events:
                await self._wait()
                continue
            try:
                await anext(self)
            except EngineFault:
                self.again()

    def __aiter__(self) -> EventStream:
        return self

    async def __anext__(self) -> Event:
        while not self._events:
            if self._ended:
                raise StopAsyncIteration
            await self._wait()
        event = self._events.popleft()
        if isinstance(event, RequestError):
            raise event
        return event

    def again(self) -> None:
        """After an `EngineFault`: run the request anew, from its start, or have another error end it."""
        self._desk.run_again(self)

    async def _wait(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        await self._waiter

    def accept(self, prompt_tokens: int) -> None:
        """The worker has taken the request."""
        self.accepted = self.prepared = True
        self.prompt_tokens = prompt_tokens
        self._wake()

    def push(self, event: Event | RequestError) -> None:
        """Append an event; `Finished` and errors are the last, but for an `EngineFault`."""
        self._events.append(event)
        self._ended = not isinstance(event, Started | TextDelta | EngineFault)
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def close(self) -> None:
        """Give the request up if it still runs; may be called again."""
        if not self._ended:
            self._ended = True
            self._desk.forget(self)
            self._wake()
