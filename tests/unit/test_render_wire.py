"""What crosses to the processes that render arrives as it was."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mashbox.chat.prompt import FormatSource, Prompt
from mashbox.chat.render_wire import (
    Ask,
    Broken,
    Built,
    Ready,
    Refused,
    Unfit,
    decode_ask,
    decode_reply,
    decode_source,
    encode_ask,
    encode_reply,
)
from mashbox.chat.types import (
    ChatRequest,
    GenerateOptions,
    Message,
    ThinkingWish,
    Tool,
    ToolCall,
    ToolChoice,
)
from mashbox.engine.frames import FrameBuffer
from mashbox.engine.types import Constraint, Reasoning, Sampling, Segment
from mashbox.errors import InvalidRequestError

texts = st.text(max_size=20)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(texts, json_values, max_size=3)
calls = st.builds(ToolCall, texts, texts, texts)
messages = st.builds(
    Message,
    st.sampled_from(["system", "user", "assistant", "tool"]),
    texts,
    texts,
    st.lists(calls, max_size=2).map(tuple),
    st.none() | texts,
)
requests = st.builds(
    ChatRequest,
    st.lists(messages, max_size=3).map(tuple),
    st.just(GenerateOptions(Sampling(seed=2**64 - 1, temperature=0.5), ("a", "é"), 7)),
    st.lists(st.builds(Tool, texts, texts, objects), max_size=2).map(tuple),
    st.builds(ToolChoice, st.sampled_from(["auto", "none", "required"]), st.none() | texts),
    st.builds(ThinkingWish, st.none() | st.booleans(), st.none() | st.integers(0, 2**63 - 1)),
    objects,
)


def body(frame: bytes) -> bytes:
    (only,) = FrameBuffer().bodies(frame)
    return only


def types_of(value: Any) -> Any:
    """The value with its types, so that 1, 1.0 and True differ."""
    if isinstance(value, dict):
        return {key: types_of(item) for key, item in value.items()}
    return [types_of(item) for item in value] if isinstance(value, list) else (type(value), value)


@given(requests, st.booleans())
def test_requests_arrive_as_they_are(request: ChatRequest, to_answer: bool) -> None:
    asked = decode_ask(body(encode_ask(Ask(request, to_answer))))
    assert asked == Ask(request, to_answer)
    sent = [request.template_kwargs, *(tool.parameters for tool in request.tools)]
    came = [asked.request.template_kwargs, *(tool.parameters for tool in asked.request.tools)]
    assert types_of(came) == types_of(sent)


@given(texts, st.lists(texts).map(tuple), st.none() | texts, st.booleans())
def test_sources_arrive_as_they_are(
    text: str, listed: tuple[str, ...], tool_format: str | None, branching: bool
) -> None:
    source = FormatSource(text, text, text, listed, listed, tool_format, branching)
    assert decode_source(body(encode_ask(source))) == source


@pytest.mark.parametrize(
    "reply",
    [
        Ready("hermes"),
        Unfit("It is no use."),
        Broken(),
        Refused("no", "messages", "template_error"),
        Refused("no"),
        Built(Prompt((Segment("a\ue000", True), Segment("é", False)))),
        Built(
            Prompt(
                (),
                Reasoning("<a>", "</a>", True, 0, "x", False, ("b",)),
                Constraint(("g",), "x"),
                ("v",),
                (1, 2),
            )
        ),
    ],
)
def test_replies_arrive_as_they_are(reply: Any) -> None:
    assert decode_reply(body(encode_reply(reply))) == reply


def test_what_cannot_be_written_is_the_requests_fault() -> None:
    def ask(**fields: Any) -> Ask:
        return Ask(
            ChatRequest((Message("user", fields.pop("text", "U")),), GenerateOptions(Sampling()), **fields),
            True,
        )

    deep: Any = {}
    for _ in range(5000):
        deep = {"a": deep}
    for asked in (ask(text="\ud800"), ask(template_kwargs=deep)):
        with pytest.raises(InvalidRequestError):
            encode_ask(asked)
