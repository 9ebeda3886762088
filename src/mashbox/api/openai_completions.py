"""POST /v1/completions: continue a plain prompt, no chat template."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from mashbox.api.openai_answer import FINISH_REASONS, AnswerHead, chat_usage, failed_end, new_head
from mashbox.api.reply import stream_reply, whole_reply
from mashbox.api.settings import ServeConfig
from mashbox.api.text_frame import HOLE, TextFrame
from mashbox.api.wire import GenerationFields, check_model, check_one_answer, no_log_probabilities
from mashbox.chat.service import Answer, ChatService
from mashbox.chat.types import ChatEvent, Done, PromptRequest, Text, WholeAnswer
from mashbox.engine.types import Sampling
from mashbox.errors import ContextLengthError, InvalidRequestError, RequestError
from mashbox.http.body import read_json
from mashbox.http.connection import while_connected
from mashbox.http.record import record_of
from mashbox.http.sse import COMMENT, DONE, EventStreamResponse, StreamLimits, data


class CompletionRequest(GenerationFields, kw_only=True):
    """The body of a completions request."""

    prompt: str | list[str]
    logprobs: Any = None


_DECODER = msgspec.json.Decoder(CompletionRequest)


class Completions:
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
        prompt_request = parse_request(body, self._defaults)
        answer = await while_connected(
            request.receive, self._start(prompt_request, record_of(request).tenant)
        )
        head = new_head("cmpl-", answer.id, self._model_id)
        seed = prompt_request.options.sampling.seed
        if body.stream:
            return stream_reply(request, answer, head.id, CompletionStream(head, seed), self._limits)
        return await whole_reply(request, answer, head.id, partial(render_response, head, seed))

    async def _start(self, request: PromptRequest, tenant: str) -> Answer:
        try:
            return await self._chat.answer(request, tenant)
        except ContextLengthError as error:
            error.param = "prompt"
            raise


def parse_request(body: CompletionRequest, defaults: Sampling) -> PromptRequest:
    """The neutral request; raises InvalidRequestError for what this server does not do."""
    check_one_answer(body)
    if body.logprobs is not None:
        raise no_log_probabilities("logprobs")
    prompts = [body.prompt] if isinstance(body.prompt, str) else body.prompt
    if len(prompts) != 1:
        raise InvalidRequestError(
            f"'prompt' must be a string or a list of one string, not of {len(prompts)}.", param="prompt"
        )
    return PromptRequest(prompts[0], body.options(defaults))


class CompletionStream:
    """Renders a streamed answer. The constant parts of a chunk are encoded once per answer."""

    def __init__(self, head: AnswerHead, seed: int) -> None:
        self._head = head
        self._seed = seed
        self._text = TextFrame(self._chunk(HOLE, None))

    def start(self) -> bytes:
        """Nothing: the first chunk carries text."""
        return b""

    def event(self, event: ChatEvent) -> bytes:
        """A text chunk, or the end of the stream."""
        if isinstance(event, Text):
            return self._text.fill(event.text)
        if isinstance(event, Done):
            return self._chunk("", FINISH_REASONS[event.reason]) + DONE
        return b""

    def failed(self, error: RequestError) -> bytes:
        """An error event, then the end of the stream."""
        return failed_end(error, self._head)

    def keep_alive(self) -> bytes:
        """A comment, which clients skip."""
        return COMMENT

    def _chunk(self, text: str, finish_reason: str | None) -> bytes:
        return data(msgspec.json.encode(_completion(self._head, self._seed, text, finish_reason)))


def render_response(head: AnswerHead, seed: int, whole: WholeAnswer) -> dict[str, Any]:
    """The whole answer as a text_completion object."""
    body = _completion(head, seed, whole.text, FINISH_REASONS[whole.done.reason])
    return body | {"usage": chat_usage(whole.done.usage)}


def _completion(head: AnswerHead, seed: int, text: str, finish_reason: str | None) -> dict[str, Any]:
    return {
        "id": head.id,
        "object": "text_completion",
        "created": head.created,
        "model": head.model,
        "system_fingerprint": f"seed-{seed}",
        "choices": [{"text": text, "index": 0, "logprobs": None, "finish_reason": finish_reason}],
    }
