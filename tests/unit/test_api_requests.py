"""Request bodies of the two OpenAI routes: every field, what passes and what is refused."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from mashbox.api.openai_chat import ChatCompletionRequest
from mashbox.api.openai_chat import parse_request as parse_chat
from mashbox.api.openai_completions import CompletionRequest
from mashbox.api.openai_completions import parse_request as parse_completion
from mashbox.api.wire import check_model
from mashbox.chat.types import ChatRequest, Message, PromptRequest
from mashbox.engine.types import Sampling
from mashbox.errors import InvalidRequestError, ModelNotFoundError
from mashbox.http.body import decode_json

CHAT = msgspec.json.Decoder(ChatCompletionRequest)
COMPLETION = msgspec.json.Decoder(CompletionRequest)
HELLO = [{"role": "user", "content": "hello"}]
DEFAULTS = Sampling(temperature=0.7, top_p=0.8, top_k=20)


def chat(**fields: Any) -> ChatRequest:
    body = json.dumps({"messages": HELLO} | fields).encode()
    return parse_chat(decode_json(body, CHAT), DEFAULTS)


def completion(**fields: Any) -> PromptRequest:
    body = json.dumps({"prompt": "hello"} | fields).encode()
    return parse_completion(decode_json(body, COMPLETION), DEFAULTS)


BAD_FOR_BOTH: list[tuple[str, list[Any]]] = [
    ("model", [1, [], True]),
    ("stream", [1, "true", []]),
    ("max_tokens", [0, -1, 1.5, "5", True, 2**63]),
    ("max_completion_tokens", [0, -1, 1.5, "5", True, 2**63]),
    ("temperature", [-0.1, 4.1, "1", True, []]),
    ("top_p", [0, -0.1, 1.01, "1", True]),
    ("top_k", [-1, 1.5, "1", True, 2**63]),
    ("min_p", [-0.1, 1, "0", True]),
    ("repetition_penalty", [0, -1, "1", True]),
    ("frequency_penalty", [-2.1, 2.1, "1", True]),
    ("presence_penalty", [-2.1, 2.1, "1", True]),
    ("seed", [1.5, "1", True, 2**64, -(2**63) - 1]),
    ("n", [0, 2, 1.5, "1", True]),
    ("stop", ["", 1, {}, True]),
    ("stop[1]", [["a", ""], ["a", 1], ["a", None]]),
    ("stop_sequences", ["x", 1, {}]),
    ("stop_sequences[0]", [[""], [1]]),
]
BAD_FOR_CHAT: list[tuple[str, list[Any]]] = [
    ("messages", [None, [], "hello", {}]),
    ("messages[0]", [["hello"], [None]]),
    ("messages[0].role", [[{}], [{"role": "function"}], [{"role": None}], [{"role": 1}]]),
    ("messages[1].role", [[*HELLO, {"role": "tester", "content": "x"}]]),
    ("messages[0].content", [[{"role": "user", "content": 5}], [{"role": "user", "content": {}}]]),
    (
        "messages[0].content[0]",
        [
            [{"role": "user", "content": ["x"]}],
            [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}],
            [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}],
            [{"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": ""}}]}],
            [{"role": "user", "content": [{"type": "file", "file": {"file_id": "x"}}]}],
        ],
    ),
    ("messages[0].content[0].type", [[{"role": "user", "content": [{"text": "x"}]}]]),
    (
        "messages[0].content[1].text",
        [
            [{"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "text"}]}],
            [{"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "text", "text": 1}]}],
        ],
    ),
    ("messages[0].content[0].refusal", [[{"role": "assistant", "content": [{"type": "refusal"}]}]]),
    ("stream_options", [1, "x", []]),
    ("stream_options.include_usage", [{"include_usage": 1}]),
    ("chat_template_kwargs", [1, "x", []]),
    ("enable_thinking", [1, "x", {}]),
    ("response_format", [{"type": "json_object"}, {"type": "json_schema", "json_schema": {}}, "text", 1]),
    ("response_format.type", [{}, {"type": 1}]),
    ("logprobs", [True, 1, 0, "x"]),
    ("top_logprobs", [1, -1, 20, "x", False]),
]
BAD_FOR_COMPLETIONS: list[tuple[str, list[Any]]] = [
    ("prompt", [None, 1, {}, [], ["a", "b"]]),
    ("prompt[0]", [[1], [["a"]]]),
    ("logprobs", [0, 1, 5, True, False, "x"]),
]


def flat(table: list[tuple[str, list[Any]]]) -> list[tuple[str, Any]]:
    return [(param, value) for param, values in table for value in values]


def field(param: str) -> str:
    return param.partition(".")[0].partition("[")[0]


@pytest.mark.parametrize(("param", "value"), flat(BAD_FOR_BOTH + BAD_FOR_CHAT))
def test_chat_refuses(param: str, value: Any) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        chat(**{field(param): value})
    assert (caught.value.status, caught.value.param) == (400, param)
    assert param in str(caught.value)


@pytest.mark.parametrize(("param", "value"), flat(BAD_FOR_BOTH + BAD_FOR_COMPLETIONS))
def test_completions_refuses(param: str, value: Any) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        completion(**{field(param): value})
    assert (caught.value.status, caught.value.param) == (400, param)
    assert param in str(caught.value)


@pytest.mark.parametrize("make", [chat, completion])
@pytest.mark.parametrize(
    ("fields", "sampling"),
    [
        ({}, {}),
        ({"temperature": 0}, {"temperature": 0.0}),
        ({"temperature": 4, "top_p": 1, "top_k": 0, "min_p": 0.99}, None),
        ({"temperature": None, "top_p": None, "top_k": None, "min_p": None}, {}),
        ({"repetition_penalty": 0.01, "frequency_penalty": -2, "presence_penalty": 2}, None),
        ({"seed": 0}, {"seed": 0}),
        ({"seed": 2**64 - 1}, {"seed": 2**64 - 1}),
        ({"seed": -1}, {"seed": 2**64 - 1}),
        ({"seed": -(2**63)}, {"seed": 2**63}),
    ],
)
def test_sampling(make: Any, fields: dict[str, Any], sampling: dict[str, Any] | None) -> None:
    made = make(**fields).options.sampling
    expected = {"seed": made.seed} | (fields if sampling is None else sampling)
    assert made == msgspec.structs.replace(DEFAULTS, **expected)


def test_an_absent_seed_is_random_and_32_bits() -> None:
    seeds = {chat(seed=None).options.sampling.seed for _ in range(20)}
    assert len(seeds) > 15
    assert all(0 <= seed < 2**32 for seed in seeds)


@pytest.mark.parametrize("make", [chat, completion])
@pytest.mark.parametrize(
    ("fields", "max_tokens", "stop"),
    [
        ({}, None, ()),
        ({"max_tokens": 1}, 1, ()),
        ({"max_completion_tokens": 7}, 7, ()),
        ({"max_tokens": 5, "max_completion_tokens": 7}, 7, ()),
        ({"max_tokens": 5, "max_completion_tokens": None}, 5, ()),
        ({"max_tokens": 2**63 - 1}, 2**63 - 1, ()),
        ({"stop": "x"}, None, ("x",)),
        ({"stop": ["x", "y"]}, None, ("x", "y")),
        ({"stop": []}, None, ()),
        ({"stop_sequences": ["z"]}, None, ("z",)),
        ({"stop": None, "stop_sequences": ["z"]}, None, ("z",)),
        ({"stop": "x", "stop_sequences": ["z"]}, None, ("x",)),
    ],
)
def test_limits(make: Any, fields: dict[str, Any], max_tokens: int | None, stop: tuple[str, ...]) -> None:
    options = make(**fields).options
    assert (options.max_tokens, options.stop) == (max_tokens, stop)


IGNORED = {
    "merge": False,
    "prompt_cache_key": "x",
    "user": "someone",
    "metadata": {"a": [1]},
    "best_of": 3,
    "echo": True,
    "n": 1,
    "service_tier": "auto",
    "reasoning_effort": "high",
    "parallel_tool_calls": False,
    "logit_bias": {"50256": -100},
    "no_such_field": {"deep": [{}]},
}


def test_other_fields_are_ignored() -> None:
    assert chat(**IGNORED, store=True, logprobs=False, top_logprobs=0).messages == chat().messages
    assert chat(merge=5, store={}, prompt_cache_key=[]).messages == chat().messages
    assert completion(**IGNORED, stream_options={"include_usage": True}).prompt == "hello"


def test_null_means_absent_everywhere() -> None:
    nulls = dict.fromkeys(ChatCompletionRequest.__struct_fields__)
    del nulls["messages"]
    assert chat(**nulls, unknown=None).messages == (Message("user", "hello"),)
    nulls = dict.fromkeys(CompletionRequest.__struct_fields__)
    del nulls["prompt"]
    assert completion(**nulls).prompt == "hello"


@pytest.mark.parametrize(
    ("message", "role", "content"),
    [
        ({"role": "user", "content": "a"}, "user", "a"),
        ({"role": "system", "content": "a"}, "system", "a"),
        ({"role": "developer", "content": "a", "name": "x"}, "system", "a"),
        ({"role": "assistant", "content": None}, "assistant", ""),
        ({"role": "assistant"}, "assistant", ""),
        ({"role": "tool", "content": "", "tool_call_id": "x"}, "tool", ""),
        ({"role": "user", "content": []}, "user", ""),
        ({"role": "user", "content": [{"type": "text", "text": "a"}]}, "user", "a"),
        (
            {"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "text", "text": "b"}]},
            "user",
            "a\nb",
        ),
        ({"role": "assistant", "content": [{"type": "output_text", "text": "a"}]}, "assistant", "a"),
        ({"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}, "assistant", "no"),
    ],
)
def test_messages(message: dict[str, Any], role: Any, content: str) -> None:
    (parsed,) = chat(messages=[message]).messages
    assert (parsed.role, parsed.content) == (role, content)


@pytest.mark.parametrize(
    ("fields", "on", "kwargs"),
    [
        ({}, None, {}),
        ({"enable_thinking": False}, False, {}),
        ({"chat_template_kwargs": {"enable_thinking": True, "x": [1]}}, True, {"x": [1]}),
        ({"enable_thinking": True, "chat_template_kwargs": {"enable_thinking": False}}, False, {}),
        ({"chat_template_kwargs": {"enable_thinking": None, "y": None}}, None, {}),
    ],
)
def test_thinking_and_template_kwargs(
    fields: dict[str, Any], on: bool | None, kwargs: dict[str, Any]
) -> None:
    request = chat(**fields)
    assert (request.thinking.on, request.template_kwargs) == (on, kwargs)


def test_prompt_may_be_a_list_of_one() -> None:
    assert completion(prompt=["x"]).prompt == "x"
    assert completion(prompt="").prompt == ""


def test_other_models_are_not_found() -> None:
    for model in (None, "org/own"):
        check_model(CompletionRequest(prompt="", model=model), "org/own")
    with pytest.raises(ModelNotFoundError) as caught:
        check_model(CompletionRequest(prompt="", model="other"), "org/own")
    assert (caught.value.code, caught.value.param) == ("model_not_found", "model")


@pytest.mark.parametrize("param", ["stop", "stop_sequences"])
def test_stop_strings_have_a_limit_in_all(param: str) -> None:
    assert len(completion(**{param: ["x" * 1000] * 65}).options.stop) == 65
    with pytest.raises(InvalidRequestError) as caught:
        completion(**{param: ["x" * 1000] * 66})
    assert caught.value.param == param
