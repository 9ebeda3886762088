"""POST /v1/responses."""

from __future__ import annotations

import asyncio
from functools import partial

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from mashbox.api.openai_answer import new_head
from mashbox.api.reply import stream_reply, whole_reply
from mashbox.api.responses_answer import ResponseStream, render_response
from mashbox.api.responses_body import ResponsesBody
from mashbox.api.responses_object import ResponseHead, echoed
from mashbox.api.responses_request import parse_request
from mashbox.api.settings import ServeConfig
from mashbox.api.wire import check_model
from mashbox.chat.service import Answer, ChatService
from mashbox.chat.types import ChatEvent, ChatRequest
from mashbox.errors import InvalidRequestError
from mashbox.http.body import read_json
from mashbox.http.connection import while_connected
from mashbox.http.errors import error_body
from mashbox.http.json import json_response
from mashbox.http.record import record_of
from mashbox.http.sse import EventStreamResponse, StreamLimits

_DECODER = msgspec.json.Decoder(ResponsesBody)


class Responses:
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
        # In a thread: the items of the largest body take seconds.
        chat_request, tools = await asyncio.to_thread(parse_request, body, self._defaults)
        answer = await while_connected(request.receive, self._start(chat_request, record_of(request).tenant))
        head = ResponseHead(new_head("resp_", answer.id, self._model_id), echoed(body, chat_request), tools)
        if body.stream:
            return stream_reply(request, answer, head.id, ResponseStream(head), self._limits)
        return await whole_reply(request, answer, head.id, partial(render_response, head))

    async def _start(self, request: ChatRequest, tenant: str) -> Answer:
        """What is wrong with the messages is wrong with this protocol's `input`."""
        try:
            return await self._chat.answer(request, tenant)
        except InvalidRequestError as error:
            if error.param == "messages":
                error.param = "input"
            raise


async def refuse_upgrade(request: Request) -> Response:
    """GET: 426 to a client that wants a WebSocket, so that it goes on with POST at once; else 405."""
    if request.headers.get("upgrade", "").strip().lower() != "websocket":
        raise HTTPException(405, headers={"Allow": "POST"})
    error = InvalidRequestError("This server has no WebSockets; send POST /v1/responses over HTTP/1.1.")
    response = json_response(error_body(error), status=426, headers={"Upgrade": "HTTP/1.1"})
    response.headers.append("Connection", "Upgrade")
    response.headers.append("Connection", "close")
    return response
