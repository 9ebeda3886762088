"""Answers requests: template, engine, parser. Knows no wire protocol."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from mashbox.chat.progress import Progress
from mashbox.chat.prompt import FormatSource
from mashbox.chat.renderer import Renderer
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
from mashbox.config import DEFAULT_LOG, LogConfig
from mashbox.engine.client import EngineClient
from mashbox.engine.event_stream import EventStream
from mashbox.engine.types import (
    Count,
    Finished,
    FinishReason,
    ModelFacts,
    Segment,
    Started,
    Submit,
    TextDelta,
)
from mashbox.errors import EngineFault, NotReadyError
from mashbox.logs.entry import Entry

log = logging.getLogger(__name__)


class Answer:
    """One answer under way: an async iterator of ChatEvent whose last one is `Done`.

    When the engine fails it before anything of it was given out, it begins once more, unseen; later,
    iterating raises EngineError. `close` cancels what is not finished.
    """

    def __init__(
        self,
        stream: EventStream,
        new_parser: Callable[[], StreamParser],
        stop: tuple[str, ...],
        keep_text: bool = False,
    ) -> None:
        self.id = stream.id
        """The request's id in the engine and its log; answers' ids end with it."""
        self.prompt_tokens = stream.prompt_tokens
        self._stream = stream
        self._new_parser = new_parser
        self._parser = new_parser()
        self._stop = stop
        self._events: deque[ChatEvent] = deque()
        self._calls = 0
        self._begun = False
        self._given = False
        self.progress = Progress(texts=[] if keep_text else None)

    def __aiter__(self) -> Answer:
        return self

    async def __anext__(self) -> ChatEvent:
        while True:
            match event := await self._next():
                case None:
                    continue
                case Begun() if self._begun:
                    continue
                case Begun():
                    self._begun = True
                case _:
                    self._given = True
            return event

    async def _next(self) -> ChatEvent | None:
        """The next event; None: the answer begins anew, and what came of it does not count."""
        while not self._events:
            try:
                event = await anext(self._stream)
            except EngineFault:
                if self._given:
                    raise
                self._begin_anew()
                return None
            match event:
                case Started():
                    self.progress.cached_tokens = event.cached_tokens
                    self.progress.started_s = self._age()
                    return Begun(self.prompt_tokens, event.cached_tokens)
                case TextDelta():
                    self._note(event)
                    self._take(self._parser.feed(event))
                case Finished():
                    self._take(self._parser.finish())
                    self.progress.done = done = self._done(event)
                    self._events.append(done)
        return self._events.popleft()

    def _begin_anew(self) -> None:
        self._stream.again()
        self._parser = self._new_parser()
        self._calls = 0
        self.progress = Progress(texts=None if self.progress.texts is None else [])

    def _note(self, event: TextDelta) -> None:
        progress = self.progress
        if not progress.pieces:
            progress.first_text_s = self._age()
        progress.pieces += 1
        if progress.texts is not None:
            progress.texts.append(event.text)

    def _age(self) -> float:
        """Seconds since the request arrived."""
        return time.monotonic() - self._stream.begun

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
        while True:
            match event := await self._next():
                case None:
                    blocks.clear()
                case Thinking() | Text() | Call():
                    blocks.append(event)
                case Done():
                    return WholeAnswer(join_blocks(blocks), event)

    def close(self) -> None:
        """Stop the engine's work on this answer; nothing happens when it is finished."""
        self._stream.close()


class ChatService:
    """Turns requests into answers of one engine.

    `format_source` says what the chat format is made of, once the engine has told what the model is. Prompts
    and answers are logged if `log_config` says so.
    """

    def __init__(
        self,
        engine: EngineClient,
        format_source: Callable[[ModelFacts], FormatSource],
        log_config: LogConfig = DEFAULT_LOG,
    ) -> None:
        self._engine = engine
        self._format_source = format_source
        self._log_config = log_config
        self._renderer: Renderer | None = None
        self._facts: ModelFacts | None = None

    async def answer(self, request: ChatRequest | PromptRequest, tenant: str = "") -> Answer:
        """Start an answer for a tenant. Returns when the engine has accepted the prompt.

        Raises InvalidRequestError (the template refuses the messages), ContextLengthError,
        OverloadedError, QueueFullError, NotReadyError or EngineError.
        """
        stream = self._engine.enter(tenant, time.monotonic())
        try:
            return await self._start(stream, request)
        except BaseException:  # cancelled, too: nobody else would close it
            stream.close()
            raise

    async def _start(self, stream: EventStream, request: ChatRequest | PromptRequest) -> Answer:
        options = request.options
        if isinstance(request, PromptRequest):
            segments = (Segment(request.prompt, parse_special=True),)
            command = Submit(
                stream.id,
                segments,
                options.sampling,
                options.stop,
                options.max_tokens,
                tenant=stream.tenant,
            )
            self._show(command)
            await stream.run(command)
            return self._answer(stream, PlainText, options.stop)
        renderer = await self.prepare()
        prompt = await renderer.prompt(request, stream.tenant)
        command = Submit(
            stream.id,
            prompt.segments,
            options.sampling,
            # An answer that is nothing but calls has no text in which a stop string could count.
            () if prompt.constraint else options.stop + renderer.source.stop,
            options.max_tokens,
            prompt.reasoning,
            prompt.constraint,
            prompt.visible,
            tenant=stream.tenant,
            branches=prompt.branches,
        )
        self._show(command)
        await stream.run(command)
        return self._answer(stream, partial(renderer.parser, request), options.stop)

    def _answer(
        self, stream: EventStream, new_parser: Callable[[], StreamParser], stop: tuple[str, ...]
    ) -> Answer:
        return Answer(stream, new_parser, stop, self._log_config.prompts)

    def _show(self, command: Submit) -> None:
        if self._log_config.prompts:
            text = "".join(segment.text for segment in command.segments)
            fields = {"engine_id": command.id, "text": text}
            log.info(Entry("prompt", f"prompt of {command.id}\n{text}", fields))

    async def count(self, request: ChatRequest, tenant: str = "") -> int:
        """The tokens of the prompt that `answer` would make of the same request, however long it is.

        Raises what `answer` does, but for ContextLengthError.
        """
        stream = self._engine.enter(tenant, is_answer=False)
        try:
            renderer = await self.prepare()
            await stream.run(Count(stream.id, await renderer.segments(request, tenant), tenant))
            return stream.prompt_tokens
        finally:
            stream.close()

    async def prepare(self) -> Renderer:
        """What renders the loaded model's template, started once.

        Raises NotReadyError, or ConfigError when the template is no use.
        """
        facts = self._engine.status.facts
        if facts is None:
            raise NotReadyError(
                "The model is still loading. Please try again.", retry_after=self._engine.retry_after
            )
        if self._facts is not facts:
            self._facts = facts
            source = self._format_source(facts)
            old = self._renderer
            if old is None or old.source != source:
                self._renderer = Renderer(source, log_config=self._log_config)
            if old is not None and old is not self._renderer:
                await old.close()
        renderer = self._renderer
        assert renderer is not None
        await renderer.ready()
        return renderer

    async def close(self) -> None:
        """End the processes that render; the last call."""
        if self._renderer is not None:
            await self._renderer.close()
