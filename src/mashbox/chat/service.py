"""Answers requests: template, engine, parser. Knows no wire protocol."""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable

from mashbox.chat.stream_parser import PlainText, StreamParser
from mashbox.chat.template import ChatTemplate
from mashbox.chat.types import ChatEvent, ChatRequest, Done, PromptRequest, Text, WholeAnswer
from mashbox.engine.client import LOADING_RETRY_S, EngineClient, EventStream
from mashbox.engine.types import ModelFacts, Segment, Submit, TextDelta
from mashbox.errors import NotReadyError


class Answer:
    """One answer under way: an async iterator of ChatEvent whose last one is `Done`.

    Iterating raises EngineError when the engine fails it. `close` cancels what is not finished.
    """

    def __init__(self, stream: EventStream, parser: StreamParser) -> None:
        self.prompt_tokens = stream.prompt_tokens
        self._stream = stream
        self._parser = parser
        self._events: deque[ChatEvent] = deque()

    def __aiter__(self) -> Answer:
        return self

    async def __anext__(self) -> ChatEvent:
        while not self._events:
            event = await anext(self._stream)
            if isinstance(event, TextDelta):
                self._events.extend(self._parser.feed(event.text))
            else:
                self._events.extend(self._parser.finish())
                self._events.append(Done(event.reason, event.usage, event.stop))
        return self._events.popleft()

    async def whole(self) -> WholeAnswer:
        """All events folded into one value."""
        texts: list[str] = []
        async for event in self:
            if isinstance(event, Text):
                texts.append(event.text)
            else:
                return WholeAnswer("".join(texts), event)
        raise AssertionError("an answer ends with Done or raises")

    def close(self) -> None:
        """Stop the engine's work on this answer; nothing happens when it is finished."""
        self._stream.close()


class ChatService:
    """Turns requests into answers of one engine.

    `make_template` builds the chat template once the engine has told what the model is.
    """

    def __init__(self, engine: EngineClient, make_template: Callable[[ModelFacts], ChatTemplate]) -> None:
        self._engine = engine
        self._make_template = make_template
        self._template: tuple[ModelFacts, ChatTemplate] | None = None

    async def answer(self, request: ChatRequest | PromptRequest) -> Answer:
        """Start an answer. Returns when the engine has accepted the prompt.

        Raises InvalidRequestError (the template refuses the messages), ContextLengthError,
        OverloadedError, NotReadyError or EngineError.
        """
        options = request.options
        command = Submit(
            id=uuid.uuid4().hex,
            segments=self._segments(request),
            sampling=options.sampling,
            stop=options.stop,
            max_tokens=options.max_tokens,
        )
        return Answer(await self._engine.submit(command), PlainText())

    def _segments(self, request: ChatRequest | PromptRequest) -> tuple[Segment, ...]:
        if isinstance(request, PromptRequest):
            return (Segment(request.prompt, parse_special=True),)
        return self._chat_template().render(request.messages, **request.template_kwargs)

    def _chat_template(self) -> ChatTemplate:
        facts = self._engine.status.facts
        if facts is None:
            raise NotReadyError(
                "The model is still loading; try again in a few seconds.", retry_after=LOADING_RETRY_S
            )
        if self._template is None or self._template[0] is not facts:
            self._template = (facts, self._make_template(facts))
        return self._template[1]
