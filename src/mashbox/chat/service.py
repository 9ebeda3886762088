"""Answers requests: template, engine, parser. Knows no wire protocol."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import deque
from collections.abc import Callable, Sequence

from mashbox.chat.prompt import ChatFormat, build_prompt, render
from mashbox.chat.stream_parser import PlainText, StreamParser
from mashbox.chat.types import (
    Begun,
    Block,
    Call,
    ChatEvent,
    ChatRequest,
    Done,
    PromptRequest,
    Text,
    Thinking,
    WholeAnswer,
    join_blocks,
)
from mashbox.engine.client import LOADING_RETRY_S, EngineClient, EventStream
from mashbox.engine.types import Finished, FinishReason, ModelFacts, Segment, Started, Submit, TextDelta
from mashbox.errors import NotReadyError


class Answer:
    """One answer under way: an async iterator of ChatEvent whose last one is `Done`.

    Iterating raises EngineError when the engine fails it. `close` cancels what is not finished.
    """

    def __init__(self, stream: EventStream, parser: StreamParser, stop: tuple[str, ...]) -> None:
        self.id = stream.id
        """The request's id in the engine and its log; answers' ids end with it."""
        self.prompt_tokens = stream.prompt_tokens
        self._stream = stream
        self._parser = parser
        self._stop = stop
        self._events: deque[ChatEvent] = deque()
        self._calls = 0

    def __aiter__(self) -> Answer:
        return self

    async def __anext__(self) -> ChatEvent:
        while not self._events:
            match await anext(self._stream):
                case Started() as event:
                    return Begun(self.prompt_tokens, event.cached_tokens)
                case TextDelta() as event:
                    self._take(self._parser.feed(event))
                case Finished() as event:
                    self._take(self._parser.finish())
                    self._events.append(self._done(event))
        return self._events.popleft()

    def _take(self, events: Sequence[Thinking | Text | Call]) -> None:
        self._events.extend(events)
        self._calls += sum(isinstance(event, Call) for event in events)

    def _done(self, finished: Finished) -> Done:
        """Only the request's own stop strings are told; the format's are the end of the turn."""
        if finished.stop is None or finished.stop in self._stop:
            return Done(finished.reason, finished.usage, finished.stop, self._calls)
        return Done(FinishReason.STOP, finished.usage, calls=self._calls)

    async def whole(self) -> WholeAnswer:
        """All events folded into one value."""
        blocks: list[Block] = []
        async for event in self:
            match event:
                case Thinking() | Text() | Call():
                    blocks.append(event)
                case Done():
                    return WholeAnswer(join_blocks(blocks), event)
        raise AssertionError("an answer ends with Done or raises")

    def close(self) -> None:
        """Stop the engine's work on this answer; nothing happens when it is finished."""
        self._stream.close()


class ChatService:
    """Turns requests into answers of one engine.

    `make_format` builds the chat format once the engine has told what the model is.
    """

    def __init__(self, engine: EngineClient, make_format: Callable[[ModelFacts], ChatFormat]) -> None:
        self._engine = engine
        self._make_format = make_format
        self._format: tuple[ModelFacts, ChatFormat] | None = None

    async def answer(self, request: ChatRequest | PromptRequest) -> Answer:
        """Start an answer. Returns when the engine has accepted the prompt.

        Raises InvalidRequestError (the template refuses the messages), ContextLengthError,
        OverloadedError, NotReadyError or EngineError.
        """
        begun = time.monotonic()
        options = request.options
        if isinstance(request, PromptRequest):
            segments = (Segment(request.prompt, parse_special=True),)
            command = Submit(uuid.uuid4().hex, segments, options.sampling, options.stop, options.max_tokens)
            return Answer(await self._engine.submit(command, begun), PlainText(), options.stop)
        chat = self.prepare()
        # In a thread: a long conversation, or a template that loops, takes seconds.
        prompt = await asyncio.to_thread(build_prompt, chat, request)
        command = Submit(
            uuid.uuid4().hex,
            prompt.segments,
            options.sampling,
            # An answer that is nothing but calls has no text in which a stop string could count.
            () if prompt.constraint else options.stop + chat.stop,
            options.max_tokens,
            prompt.reasoning,
            prompt.constraint,
            prompt.visible,
            branches=prompt.branches,
        )
        return Answer(await self._engine.submit(command, begun), prompt.parser, options.stop)

    async def count(self, request: ChatRequest) -> int:
        """The tokens of the prompt that `answer` would make of the same request, however long it is.

        Raises InvalidRequestError, NotReadyError or EngineError.
        """
        return await self._engine.count(await asyncio.to_thread(render, self.prepare(), request))

    def prepare(self) -> ChatFormat:
        """The loaded model's chat format, built once. Raises NotReadyError or what `make_format` raises."""
        facts = self._engine.status.facts
        if facts is None:
            raise NotReadyError("The model is still loading. Please try again.", retry_after=LOADING_RETRY_S)
        if self._format is None or self._format[0] is not facts:
            self._format = (facts, self._make_format(facts))
        return self._format[1]
