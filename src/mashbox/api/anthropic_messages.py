"""POST /v1/messages and /v1/messages/count_tokens."""

from __future__ import annotations

import asyncio
from functools import partial

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from mashbox.api.anthropic_answer import MessageStream, new_head, render_message
from mashbox.api.anthropic_request import CountRequest, MessagesRequest, parse_count, parse_request
from mashbox.api.reply import stream_reply, whole_reply
from mashbox.api.settings import ServeConfig
from mashbox.chat.service import ChatService
from mashbox.chat.types import ChatEvent
from mashbox.http.body import read_json
from mashbox.http.connection import while_connected
from mashbox.http.echo import echo
from mashbox.http.json import json_response
from mashbox.http.record import Outcome, record_of
from mashbox.http.sse import EventStreamResponse, StreamLimits

COUNTED = "counted"
"""How a request ends that only asks for a number."""
_DECODER = msgspec.json.Decoder(MessagesRequest)
_COUNT_DECODER = msgspec.json.Decoder(CountRequest)


class Messages:
    """Both routes' handlers. Any model id is taken, and told back."""

    def __init__(self, chat: ChatService, config: ServeConfig, limits: StreamLimits) -> None:
        self._chat = chat
        self._model_id = config.model_id
        self._defaults = config.default_sampling
        self._limits = limits

    async def handle(self, request: Request) -> Response | EventStreamResponse[ChatEvent]:
        """Parse, start the answer, then send it streamed or whole."""
        body = await read_json(request, _DECODER)
        record_of(request).tag_session(body.prompt_cache_key)
        # In a thread: the blocks of the largest bodies take seconds.
        chat_request = await asyncio.to_thread(parse_request, body, self._defaults)
        answer = await while_connected(
            request.receive, self._chat.answer(chat_request, record_of(request).tenant)
        )
        head = new_head(answer.id, echo(body.model or self._model_id))
        if body.stream:
            return stream_reply(request, answer, head.id, MessageStream(head), self._limits)
        return await whole_reply(request, answer, head.id, partial(render_message, head))

    async def handle_count(self, request: Request) -> Response:
        """How many tokens the prompt of such a request has."""
        body = await read_json(request, _COUNT_DECODER)
        chat_request = await asyncio.to_thread(parse_count, body)
        tokens = await while_connected(
            request.receive, self._chat.count(chat_request, record_of(request).tenant)
        )
        record_of(request).outcome = Outcome("", tokens, finish=COUNTED)
        return json_response({"input_tokens": tokens})
