"""POST /v1/chat/completions."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from mashbox.api.ids import new_id
from mashbox.api.openai_answer import (
    FINISH_REASONS,
    AnswerHead,
    chat_timings,
    chat_usage,
    failed_end,
    new_head,
)
from mashbox.api.openai_messages import (
    ChatMessage,
    ChatTool,
    ChoiceField,
    neutral_choice,
    neutral_messages,
    neutral_tools,
)
from mashbox.api.reply import stream_reply, whole_reply
from mashbox.api.settings import ServeConfig
from mashbox.api.text_frame import HOLE, TextFrame
from mashbox.api.wire import (
    MAX_MESSAGES,
    MAX_TOOLS,
    GenerationFields,
    check_model,
    check_one_answer,
    no_log_probabilities,
)
from mashbox.chat.service import ChatService
from mashbox.chat.types import (
    Begun,
    Call,
    ChatEvent,
    ChatRequest,
    Done,
    Text,
    Thinking,
    ThinkingWish,
    WholeAnswer,
)
from mashbox.engine.types import Sampling
from mashbox.errors import InvalidRequestError, RequestError
from mashbox.http.body import read_json
from mashbox.http.connection import while_connected
from mashbox.http.echo import echo
from mashbox.http.record import record_of
from mashbox.http.sse import COMMENT, DONE, EventStreamResponse, StreamLimits, data


class StreamOptions(msgspec.Struct):
    """Options of a streamed answer."""

    include_usage: bool | None = None


class ResponseFormat(msgspec.Struct):
    """The wanted form of the answer; only text is given."""

    type: str


class ChatCompletionRequest(GenerationFields, kw_only=True):
    """The body of a chat completions request."""

    messages: Annotated[list[ChatMessage], Meta(min_length=1, max_length=MAX_MESSAGES)]
    tools: Annotated[list[ChatTool], Meta(max_length=MAX_TOOLS)] | None = None
    tool_choice: ChoiceField | None = None
    stream_options: StreamOptions | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    enable_thinking: bool | None = None
    response_format: ResponseFormat | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None

    @property
    def include_usage(self) -> bool:
        """Whether a stream ends with a usage chunk."""
        return bool(self.stream_options and self.stream_options.include_usage)


_DECODER = msgspec.json.Decoder(ChatCompletionRequest)


class ChatCompletions:
    """The route's handler."""

    def __init__(self, chat: ChatService, config: ServeConfig, limits: StreamLimits) -> None:
        self._chat = chat
        self._model_id = config.model_id
        self._defaults = config.default_sampling
        self._limits = limits

    async def handle(self, request: Request) -> Response | EventStreamResponse[ChatEvent]:
        """Parse, start the answer, then send it streamed or whole."""
        body = await read_json(request, _DECODER)
        record_of(request).tag_session(body.prompt_cache_key)
        check_model(body, self._model_id)
        # In a thread: the messages of the largest body take seconds.
        chat_request = await asyncio.to_thread(parse_request, body, self._defaults)
        answer = await while_connected(
            request.receive, self._chat.answer(chat_request, record_of(request).tenant)
        )
        head = new_head("chatcmpl-", answer.id, self._model_id)
        if body.stream:
            return stream_reply(request, answer, head.id, ChatStream(head, body.include_usage), self._limits)
        return await whole_reply(request, answer, head.id, partial(render_response, head))


def parse_request(body: ChatCompletionRequest, defaults: Sampling) -> ChatRequest:
    """The neutral request; raises InvalidRequestError for what this server does not do."""
    check_one_answer(body)
    if body.logprobs:
        raise no_log_probabilities("logprobs")
    if body.top_logprobs:
        raise no_log_probabilities("top_logprobs")
    if body.response_format is not None and body.response_format.type != "text":
        raise InvalidRequestError(
            f"'response_format' of type '{echo(body.response_format.type)}' is not supported, only 'text'.",
            param="response_format",
        )
    tools = neutral_tools(body.tools or ())
    kwargs = dict(body.chat_template_kwargs or {})
    return ChatRequest(
        neutral_messages(body.messages),
        body.options(defaults),
        tools,
        neutral_choice(body.tool_choice, tools),
        ThinkingWish(on=thinking_switch(kwargs.pop("enable_thinking", None), body.enable_thinking)),
        {name: value for name, value in kwargs.items() if value is not None},
    )


def thinking_switch(kwarg: Any, short: bool | None) -> bool | None:
    """Whether thinking is asked for; the template option wins over the short `enable_thinking`."""
    if kwarg is None:
        return short
    if not isinstance(kwarg, bool):
        param = "chat_template_kwargs.enable_thinking"
        raise InvalidRequestError(f"Invalid value for '{param}': expected boolean.", param=param)
    return kwarg


class ChatStream:
    """Renders a streamed answer. The constant parts of a chunk are encoded once per answer."""

    def __init__(self, head: AnswerHead, include_usage: bool) -> None:
        self._head = head
        self._include_usage = include_usage
        self._text = TextFrame(self._chunk({"content": HOLE}, None))
        self._thinking = TextFrame(self._chunk({"reasoning_content": HOLE}, None))
        self._calls = 0

    def start(self) -> bytes:
        """The chunk with the role."""
        return self._chunk({"role": "assistant", "content": ""}, None)

    def event(self, event: ChatEvent) -> bytes:
        """A content chunk, or the end of the stream."""
        match event:
            case Text():
                return self._text.fill(event.text)
            case Thinking():
                return self._thinking.fill(event.text)
            case Call():
                return self._call(event)
            case Done():
                return self._finish(event)
            case Begun():
                return b""

    def failed(self, error: RequestError) -> bytes:
        """An error event, then the end of the stream."""
        return failed_end(error, self._head)

    def keep_alive(self) -> bytes:
        """A comment, which clients skip."""
        return COMMENT

    def _call(self, call: Call) -> bytes:
        """Two chunks: which function, then its arguments."""
        head = tool_call(call) | {"index": self._calls}
        arguments = {"index": self._calls, "function": {"arguments": call.arguments}}
        head["function"] = {"name": call.name, "arguments": ""}
        self._calls += 1
        return self._chunk({"tool_calls": [head]}, None) + self._chunk({"tool_calls": [arguments]}, None)

    def _finish(self, done: Done) -> bytes:
        timings = chat_timings(done.usage)
        chunks = self._chunk({}, finish_reason(done), timings=timings)
        if self._include_usage:
            usage = {"usage": chat_usage(done.usage), "timings": timings}
            chunks += data(msgspec.json.encode(self._envelope([]) | usage))
        return chunks + DONE

    def _chunk(self, delta: dict[str, Any], finish_reason: str | None, **more: Any) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        if self._include_usage:
            more["usage"] = None
        return data(msgspec.json.encode(self._envelope([choice]) | more))

    def _envelope(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        head = self._head
        return {
            "id": head.id,
            "object": "chat.completion.chunk",
            "created": head.created,
            "model": head.model,
            "choices": choices,
        }


def tool_call(call: Call) -> dict[str, Any]:
    """A call with a new id."""
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": new_id("call_"), "type": "function", "function": function}


def finish_reason(done: Done) -> str:
    """ "tool_calls" exactly when there are calls."""
    return "tool_calls" if done.calls else FINISH_REASONS[done.reason]


def render_response(head: AnswerHead, whole: WholeAnswer) -> dict[str, Any]:
    """The whole answer as a chat.completion object."""
    choice = {
        "index": 0,
        "message": _message(whole),
        "logprobs": None,
        "finish_reason": finish_reason(whole.done),
    }
    return {
        "id": head.id,
        "object": "chat.completion",
        "created": head.created,
        "model": head.model,
        "choices": [choice],
        "usage": chat_usage(whole.done.usage),
        "timings": chat_timings(whole.done.usage),
    }


def _message(whole: WholeAnswer) -> dict[str, Any]:
    """Content is null where there are only calls; thinking and calls are left out where there are none."""
    calls = [tool_call(call) for call in whole.calls]
    content = None if calls and not whole.text else whole.text
    message: dict[str, Any] = {"role": "assistant", "content": content, "refusal": None}
    if whole.thinking:
        message["reasoning_content"] = whole.thinking
    if calls:
        message["tool_calls"] = calls
    return message
