"""Everything the renderers write is described, and nothing that they write is not."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from mashbox.api.anthropic_answer import MessageHead, MessageStream, render_message
from mashbox.api.health import Kernel, RoutedExperts
from mashbox.api.openai_answer import AnswerHead
from mashbox.api.openai_chat import ChatStream
from mashbox.api.openai_chat import render_response as render_chat
from mashbox.api.openai_completions import CompletionStream
from mashbox.api.openai_completions import render_response as render_completion
from mashbox.api.openapi.document import describe
from mashbox.api.responses_answer import ResponseStream
from mashbox.api.responses_answer import render_response as render_responses
from mashbox.api.responses_body import ResponsesBody
from mashbox.api.responses_object import ResponseHead, echoed
from mashbox.api.responses_request import parse_request
from mashbox.chat.types import Begun, Block, Call, ChatEvent, Done, Text, Thinking, WholeAnswer, join_blocks
from mashbox.engine.types import FinishReason, Sampling, Usage
from mashbox.errors import EngineError, InternalError, InvalidRequestError, OverloadedError, RequestError
from mashbox.http.sse import Renderer
from tests.contract.reading import closed, validator

DOCUMENT = closed(describe("m", Sampling()))
HEAD = AnswerHead("id-1", 1, "m")
TOOLS: list[dict[str, Any]] = [
    {"type": "function", "name": "look"},
    {"type": "custom", "name": "patch"},
    {"type": "namespace", "name": "files", "tools": [{"type": "function", "name": "read"}]},
]
PARTS: list[list[Block]] = [
    [],
    [Text("a")],
    [Thinking("t"), Text("a"), Text("b")],
    [Thinking("t"), Text("a"), Call("look", '{"a": 1}'), Call("patch", '{"input": "p"}')],
    [Call("files__read", "{}"), Text("a"), Thinking("t")],
    [Thinking("t")],
]
ERRORS = [
    EngineError("No."),
    InternalError(),
    OverloadedError("No.", retry_after=1),
    InvalidRequestError("No.", param="x"),
]


def done(parts: list[Block], reason: FinishReason, ms: float = 5.0) -> Done:
    calls = sum(isinstance(part, Call) for part in parts)
    stop = "x" if reason is FinishReason.STOP_STRING else None
    return Done(reason, Usage(5, 2, 3, ms, ms, ms, 1), stop, calls)


def responses_head() -> ResponseHead:
    body = ResponsesBody(input="x", tools=TOOLS)
    request, box = parse_request(body, Sampling())
    return ResponseHead(AnswerHead("resp_1", 1, "m"), echoed(body, request), box)


Stream = Callable[[], Renderer[ChatEvent]]
WHOLE: dict[str, Callable[[WholeAnswer], Any]] = {
    "ChatCompletion": lambda whole: render_chat(HEAD, whole),
    "Completion": lambda whole: render_completion(HEAD, 7, whole),
    "Message": lambda whole: render_message(MessageHead("msg_1", "m"), whole),
    "Response": lambda whole: render_responses(responses_head(), whole),
}
STREAMS: dict[str, list[Stream]] = {
    "ChatCompletionChunk": [lambda: ChatStream(HEAD, True), lambda: ChatStream(HEAD, False)],
    "Completion": [lambda: CompletionStream(HEAD, 7)],
    "MessageStreamEvent": [lambda: MessageStream(MessageHead("msg_1", "m"))],
    "ResponseStreamEvent": [lambda: ResponseStream(responses_head())],
}


def check(name: str, value: Any, *others: str) -> None:
    schemas = [{"$ref": f"#/components/schemas/{each}"} for each in (name, *others)]
    validator(DOCUMENT, {"anyOf": schemas}).validate(value)


def check_bytes(name: str, sent: bytes, *others: str) -> None:
    for line in sent.decode().split("\n"):
        if line.startswith("data: {"):
            check(name, json.loads(line.removeprefix("data: ")), *others)


@pytest.mark.parametrize("reason", FinishReason)
@pytest.mark.parametrize("parts", PARTS)
@pytest.mark.parametrize("name", WHOLE)
def test_whole_answers(name: str, parts: list[Block], reason: FinishReason) -> None:
    for ms in (0.0, 5.0):
        rendered = WHOLE[name](WholeAnswer(join_blocks(parts), done(parts, reason, ms)))
        check(name, json.loads(msgspec.json.encode(rendered)))


@pytest.mark.parametrize("reason", FinishReason)
@pytest.mark.parametrize("parts", PARTS)
@pytest.mark.parametrize("name", STREAMS)
def test_streams(name: str, parts: list[Block], reason: FinishReason) -> None:
    for make in STREAMS[name]:
        stream = make()
        check_bytes(name, stream.start() + stream.keep_alive())
        for event in (Begun(5, 2), *parts, done(parts, reason)):
            check_bytes(name, stream.event(event))


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("name", STREAMS)
def test_failed_streams(name: str, error: RequestError) -> None:
    """OpenAI's chunks have no error; its error object is an event of its own."""
    others = () if name.endswith("Event") else ("Error",)
    for make in STREAMS[name]:
        stream = make()
        stream.start()
        stream.event(Begun(5, 2))
        stream.event(Text("a"))
        sent = stream.failed(error)
        assert b"data: {" in sent
        check_bytes(name, sent, *others)


def test_routed_experts() -> None:
    report = RoutedExperts("kernel", Kernel("k", "1", "p"), {"kernel": 3, "exact": 0}, None)
    check("RoutedExperts", msgspec.to_builtins(report))
