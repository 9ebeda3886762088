"""Bodies of the Responses route: every field but the input's items, what passes and what is refused."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from mashbox.api.responses_body import ResponsesBody
from mashbox.api.responses_request import parse_request
from mashbox.chat.types import ChatRequest, Message
from mashbox.engine.types import Sampling
from mashbox.errors import InvalidRequestError
from mashbox.http.body import decode_json

DECODER = msgspec.json.Decoder(ResponsesBody)
DEFAULTS = Sampling(temperature=0.7, top_p=0.8, top_k=20)


def parse(**fields: Any) -> ChatRequest:
    body = json.dumps({"input": "hello"} | fields).encode()
    return parse_request(decode_json(body, DECODER), DEFAULTS)[0]


FUNCTION = {"type": "function", "name": "look"}

REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("instructions", {"instructions": 5}),
    ("instructions", {"instructions": ["x"]}),
    ("tools", {"tools": {}}),
    ("tools[0]", {"tools": ["x"]}),
    ("tools[1].type", {"tools": [FUNCTION, {"name": "x"}]}),
    ("tools[0].name", {"tools": [{"type": "function"}]}),
    ("tools[0].name", {"tools": [{"type": "function", "name": ""}]}),
    ("tools[0].name", {"tools": [{"type": "custom", "name": "a\nb"}]}),
    ("tools[0].parameters", {"tools": [FUNCTION | {"parameters": []}]}),
    ("tools[0].function.name", {"tools": [{"type": "function", "function": {}}]}),
    ("tools[0].tools", {"tools": [{"type": "namespace", "name": "n"}]}),
    (
        "tools[0].tools[1].name",
        {"tools": [{"type": "namespace", "name": "n", "tools": [FUNCTION, {"type": "custom"}]}]},
    ),
    ("tool_choice", {"tool_choice": "any"}),
    ("tool_choice", {"tool_choice": 5}),
    ("tool_choice", {"tool_choice": "required"}),
    ("tool_choice", {"tool_choice": "required", "tools": [{"type": "web_search"}]}),
    ("tool_choice.type", {"tool_choice": {"name": "look"}}),
    ("tool_choice.name", {"tool_choice": {"type": "function"}, "tools": [FUNCTION]}),
    ("tool_choice", {"tool_choice": {"type": "function", "name": "other"}, "tools": [FUNCTION]}),
    ("tool_choice", {"tool_choice": {"type": "custom", "name": "look"}, "tools": [FUNCTION]}),
    ("tool_choice.tools", {"tool_choice": {"type": "allowed_tools", "mode": "auto"}}),
    ("tool_choice.mode", {"tool_choice": {"type": "allowed_tools", "mode": "none", "tools": []}}),
    ("tool_choice", {"tool_choice": {"type": "allowed_tools", "mode": "required", "tools": []}}),
    ("tool_choice", {"tool_choice": {"type": "allowed_tools", "tools": [FUNCTION]}}),
    ("parallel_tool_calls", {"parallel_tool_calls": 1}),
    ("reasoning", {"reasoning": "high"}),
    ("reasoning.effort", {"reasoning": {"effort": 1}}),
    ("text", {"text": "text"}),
    ("text.format.type", {"text": {"format": {}}}),
    ("text.format", {"text": {"format": {"type": "json_object"}}}),
    ("text.format", {"text": {"format": {"type": "json_schema", "name": "x", "schema": {}}}}),
    ("top_logprobs", {"top_logprobs": 1}),
    ("top_logprobs", {"top_logprobs": "x"}),
    ("include", {"include": "x"}),
    ("include", {"include": ["reasoning.encrypted_content", "message.output_text.logprobs"]}),
    ("previous_response_id", {"previous_response_id": "resp_1"}),
    ("conversation", {"conversation": "conv_1"}),
    ("conversation", {"conversation": {"id": "conv_1"}}),
    ("max_output_tokens", {"max_output_tokens": 0}),
    ("max_output_tokens", {"max_output_tokens": 1.5}),
    ("max_tokens", {"max_tokens": 0}),
    ("temperature", {"temperature": 4.1}),
    ("stop[0]", {"stop": [""]}),
    ("n", {"n": 2}),
]


@pytest.mark.parametrize(("param", "fields"), REFUSED)
def test_refused(param: str, fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        parse(**fields)
    assert (caught.value.status, caught.value.param) == (400, param)
    assert param in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "max_tokens"),
    [
        ({}, None),
        ({"max_tokens": 1}, 1),
        ({"max_tokens": 1, "max_completion_tokens": 2}, 2),
        ({"max_tokens": 1, "max_completion_tokens": 2, "max_output_tokens": 3}, 3),
        ({"max_tokens": 1, "max_output_tokens": None}, 1),
    ],
)
def test_limits(fields: dict[str, Any], max_tokens: int | None) -> None:
    assert parse(**fields).options.max_tokens == max_tokens


def test_sampling_and_stop_are_those_of_every_route() -> None:
    options = parse(temperature=0, top_k=3, seed=5, stop="x").options
    assert options.sampling == Sampling(temperature=0.0, top_p=0.8, top_k=3, seed=5)
    assert options.stop == ("x",)


@pytest.mark.parametrize(
    ("reasoning", "on"),
    [
        (None, True),
        ({}, True),
        ({"effort": None, "summary": "auto"}, True),
        ({"effort": "low"}, True),
        ({"effort": "xhigh"}, True),
        ({"effort": "minimal"}, False),
        ({"effort": "none"}, False),
    ],
)
def test_thinking(reasoning: dict[str, Any] | None, on: bool) -> None:
    thinking = parse(reasoning=reasoning).thinking
    assert (thinking.on, thinking.budget) == (on, None)


def test_other_fields_are_ignored() -> None:
    ignored: dict[str, Any] = {
        "store": True,
        "client_metadata": {"x": 1},
        "metadata": [1],
        "include": ["reasoning.encrypted_content", 5],
        "text": {"verbosity": "low", "format": {"type": "text"}},
        "top_logprobs": 0,
        "truncation": "auto",
        "background": True,
        "prompt_cache_key": {},
        "merge": 5,
        "n": 1,
        "no_such_field": {"deep": [{}]},
    }
    assert parse(**ignored).messages == parse().messages


def test_null_means_absent_everywhere() -> None:
    nulls = dict.fromkeys(ResponsesBody.__struct_fields__)
    del nulls["input"]
    request = parse(**nulls)
    assert (request.messages, request.tools) == ((Message("user", "hello"),), ())
