"""Responses streams with thinking, calls and failures, read by the official client's stream helper."""

from __future__ import annotations

import httpx2 as httpx
import openai

from mashbox.api.responses_answer import ResponseStream
from mashbox.chat.types import Call, ChatEvent, Text, Thinking
from mashbox.errors import EngineError
from tests.unit.test_responses_answer import STOP, make_head, stream


def client_of(sent: bytes) -> openai.OpenAI:
    """The official client, reading `sent` from every request."""
    headers = {"content-type": "text/event-stream"}
    transport = httpx.MockTransport(lambda request: httpx.Response(200, headers=headers, content=sent))
    return openai.OpenAI(
        base_url="http://x", api_key="x", max_retries=0, http_client=httpx.Client(transport=transport)
    )


def test_the_official_stream_helper() -> None:
    events: list[ChatEvent] = [
        Thinking("th"),
        Thinking("ink"),
        Text("so"),
        Call("files__read", '{"path":"x"}'),
        Call("apply_patch", '{"input":"in"}'),
        STOP,
    ]
    with (
        client_of(stream(events)) as client,
        client.responses.stream(model="m", input="x") as helper,
    ):
        seen = list(helper)
        final = helper.get_final_response()
    assert [event.sequence_number for event in seen] == list(range(1, len(seen) + 1))
    thought, said, called, patched = final.output
    assert thought.type == "reasoning"
    assert [part.text for part in thought.content or ()] == ["think"]
    assert said.type == "message"
    assert final.output_text == "so"
    assert called.type == "function_call"
    assert (called.name, called.namespace, called.arguments) == ("read", "files", '{"path":"x"}')
    assert patched.type == "custom_tool_call"
    assert (patched.name, patched.input) == ("apply_patch", "in")
    deltas = [event for event in seen if event.type == "response.function_call_arguments.delta"]
    assert deltas[-1].snapshot == '{"path":"x"}'
    assert final.usage is not None
    assert final.usage.total_tokens == 17


def test_the_official_stream_helper_sees_a_failure() -> None:
    renderer = ResponseStream(make_head())
    sent = renderer.start() + renderer.event(Text("a")) + renderer.failed(EngineError("No."))
    with client_of(sent) as client, client.responses.stream(model="m", input="x") as helper:
        *_, error, final = list(helper)
    assert error.type == "error"
    assert error.message == "No."
    assert final.type == "response.failed"
    assert final.response.error is not None
    assert final.response.error.message == "No."
