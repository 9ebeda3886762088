"""POST /v1/chat/completions."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from mashbox.api.openai_answer import FINISH_REASONS, AnswerHead, chat_timings, chat_usage, new_head
from mashbox.api.openai_messages import ChatMessage, neutral_messages
from mashbox.api.reply import stream_reply, whole_reply
from mashbox.api.settings import ServeConfig
from mashbox.api.wire import GenerationFields, check_model, check_one_answer, no_log_probabilities
from mashbox.chat.service import ChatService
from mashbox.chat.types import ChatEvent, ChatRequest, Done, Text, WholeAnswer
from mashbox.engine.types import Sampling
from mashbox.errors import InvalidRequestError, RequestError
from mashbox.http.body import read_json
from mashbox.http.connection import while_connected
from mashbox.http.errors import error_body
from mashbox.http.sse import COMMENT, DONE, EventStreamResponse, StreamLimits, data


class StreamOptions(msgspec.Struct):
    """Options of a streamed answer."""

    include_usage: bool | None = None


class ResponseFormat(msgspec.Struct):
    """The wanted form of the answer; only text is given."""

    type: str


class ChatCompletionRequest(GenerationFields, kw_only=True):
    """The body of a chat completions request."""

    messages: Annotated[list[ChatMessage], Meta(min_length=1)]
    stream_options: StreamOptions | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    enable_thinking: bool | None = None
    response_format: ResponseFormat | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    store: Any = None

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
        check_model(body, self._model_id)
        chat_request = parse_request(body, self._defaults)
        answer = await while_connected(request.receive, self._chat.answer(chat_request))
        head = new_head("chatcmpl-", self._model_id)
        if body.stream:
            return stream_reply(answer, ChatStream(head, body.include_usage), self._limits)
        return await whole_reply(request, answer, partial(render_response, head))


def parse_request(body: ChatCompletionRequest, defaults: Sampling) -> ChatRequest:
    """The neutral request; raises InvalidRequestError for what this server does not do."""
    check_one_answer(body)
    if body.logprobs:
        raise no_log_probabilities("logprobs")
    if body.top_logprobs:
        raise no_log_probabilities("top_logprobs")
    if body.response_format is not None and body.response_format.type != "text":
        raise InvalidRequestError(
            f"'response_format' of type '{body.response_format.type}' is not supported; only 'text' is.",
            param="response_format",
        )
    return ChatRequest(neutral_messages(body.messages), body.options(defaults), template_kwargs(body))


def template_kwargs(body: ChatCompletionRequest) -> dict[str, Any]:
    """The template's extra variables; `chat_template_kwargs` wins over the short `enable_thinking`."""
    named = {"enable_thinking": body.enable_thinking, **(body.chat_template_kwargs or {})}
    return {name: value for name, value in named.items() if value is not None}


class ChatStream:
    """Renders a streamed answer. The constant parts of a chunk are encoded once per answer."""

    def __init__(self, head: AnswerHead, include_usage: bool) -> None:
        self._head = head
        self._include_usage = include_usage
        before, after = self._chunk({"content": "\0"}, None).split(rb'"\u0000"')
        self._before_text = before
        self._after_text = after
        self._encode = msgspec.json.Encoder().encode

    def start(self) -> bytes:
        """The chunk with the role."""
        return self._chunk({"role": "assistant", "content": ""}, None)

    def event(self, event: ChatEvent) -> bytes:
        """A content chunk, or the end of the stream."""
        if isinstance(event, Text):
            return self._before_text + self._encode(event.text) + self._after_text
        return self._finish(event)

    def failed(self, error: RequestError) -> bytes:
        """An error event, then the end of the stream."""
        return data(msgspec.json.encode(error_body(error, request_id=self._head.id))) + DONE

    def keep_alive(self) -> bytes:
        """A comment, which clients skip."""
        return COMMENT

    def _finish(self, done: Done) -> bytes:
        timings = chat_timings(done.usage)
        chunks = self._chunk({}, FINISH_REASONS[done.reason], timings=timings)
        if self._include_usage:
            usage = {"usage": chat_usage(done.usage), "timings": timings}
            chunks += data(msgspec.json.encode(self._envelope([]) | usage))
        return chunks + DONE

    def _chunk(self, delta: dict[str, str], finish_reason: str | None, **more: Any) -> bytes:
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


def render_response(head: AnswerHead, whole: WholeAnswer) -> dict[str, Any]:
    """The whole answer as a chat.completion object."""
    message = {"role": "assistant", "content": whole.text, "refusal": None}
    finish_reason = FINISH_REASONS[whole.done.reason]
    return {
        "id": head.id,
        "object": "chat.completion",
        "created": head.created,
        "model": head.model,
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": finish_reason}],
        "usage": chat_usage(whole.done.usage),
        "timings": chat_timings(whole.done.usage),
    }
