"""chat/formats: the grammars of required calls, on the real llguidance, and read back by the reader."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper

from mashbox.chat.formats.choose import FORMAT_NAMES, choose_format
from mashbox.chat.types import Call, Tool, ToolChoice
from tests.unit.formats_support import NOTE, PING, TOOLS, WEATHER, read, reader
from tests.unit.test_formats_read import (
    BEGIN_ALL,
    END_ALL,
    bare,
    fenced,
    glm,
    harmony_call,
    hermes,
    xml,
)

ANY = ToolChoice("required")
END_TOKEN = 256


class _Bytes:
    """A vocabulary of the 256 bytes and one end token."""

    eos_token_id = END_TOKEN
    bos_token_id = None
    tokens = (*(bytes([byte]) for byte in range(256)), b"")
    special_token_ids = (END_TOKEN,)

    def __call__(self, text: bytes) -> list[int]:
        return list(text)


TOKENIZER = LLTokenizer(TokenizerWrapper(_Bytes()))


def matcher(grammar: str) -> LLMatcher:
    found = LLMatcher(TOKENIZER, grammar, log_level=0)
    assert not found.is_error(), found.get_error()
    return found


def accepts(grammar: str, text: str) -> bool:
    """Whether every byte of the text may follow the ones before, and the end after the last."""
    found = matcher(grammar)
    taken = list(text.encode())
    return found.try_consume_tokens(taken) == len(taken) and found.is_accepting()


PARIS = '{"city": "Paris"}'
ONE: dict[str, str] = {
    "hermes": hermes(PARIS, "get_weather"),
    "plain": hermes(PARIS, "get_weather").replace("\n", ""),
    "qwen3-coder": xml("get_weather", ("city", "Paris")),
    "llama3": f'{{"name": "get_weather", "parameters": {PARIS}}}',
    "mistral": f'[TOOL_CALLS][{{"name": "get_weather", "arguments": {PARIS}}}]',
    "mistral-args": f"[TOOL_CALLS]get_weather[ARGS]{PARIS}",
    "deepseek-v3": BEGIN_ALL + fenced("get_weather", PARIS) + END_ALL,
    "deepseek-v3.1": BEGIN_ALL + bare("get_weather", PARIS) + END_ALL,
    "glm": glm("get_weather", ("city", "Paris")),
    "lfm2": '<|tool_call_start|>[get_weather(city="Paris")]<|tool_call_end|>',
    "harmony": harmony_call(PARIS, "get_weather").removesuffix("<|call|>"),
}
FULL = '{"city": "a </b> \\n", "days": 3, "where": {"lat": 1.5}, "unit": "F", "limit": null}'
FULL_PARAMETERS = (
    ("city", "a </b> \n"),
    ("days", "3"),
    ("where", '{"lat": 1.5}'),
    ("unit", "F"),
    ("limit", "null"),
)
TWO: dict[str, str] = {
    "hermes": f"{hermes(FULL, 'get_weather')}\n{hermes('{}', 'ping')}",
    "plain": hermes(FULL, "get_weather").replace("\n", "") + "\n" + hermes("{}", "ping").replace("\n", ""),
    "qwen3-coder": f"{xml('get_weather', *FULL_PARAMETERS)}\n{xml('ping')}",
    "llama3": f'{{"name": "get_weather", "parameters": {FULL}}}; {{"name": "ping", "parameters": {{}}}}',
    "mistral": f'[TOOL_CALLS][{{"name": "get_weather", "arguments": {FULL}}}, '
    '{"name": "ping", "arguments": {}}]',
    "mistral-args": f"[TOOL_CALLS]get_weather[ARGS]{FULL}[TOOL_CALLS]ping[ARGS]{{}}",
    "deepseek-v3": f"{BEGIN_ALL}{fenced('get_weather', FULL)}\n{fenced('ping', '{}')}{END_ALL}",
    "deepseek-v3.1": f"{BEGIN_ALL}{bare('get_weather', FULL)}{bare('ping', '{}')}{END_ALL}",
    "glm": f"{glm('get_weather', *FULL_PARAMETERS)}\n{glm('ping')}",
    "lfm2": '<|tool_call_start|>[get_weather(city="a </b> \\n", days=3, where={"lat": 1.5}, unit="F", '
    "limit=null), ping()]<|tool_call_end|>",
}
PING_CALL = Call("ping", "{}")
FULL_CALLS = (Call("get_weather", FULL), PING_CALL)


@pytest.mark.parametrize("name", FORMAT_NAMES)
def test_every_grammar_takes_a_call_that_the_reader_reads(name: str) -> None:
    for choice in (ANY, ToolChoice("required", "get_weather")):
        grammars = choose_format(None, name).constraint(TOOLS, choice).grammars
        assert [accepts(grammar, ONE[name]) for grammar in grammars] == [True] * len(grammars)
    assert read(reader(name), [ONE[name]]) == (Call("get_weather", PARIS),)


@pytest.mark.parametrize("name", TWO)
def test_several_calls_are_read_but_a_required_one_stays_alone(name: str) -> None:
    for grammar in choose_format(None, name).constraint(TOOLS, ANY).grammars:
        assert not accepts(grammar, TWO[name])
    assert read(reader(name), [TWO[name]]) == FULL_CALLS


@pytest.mark.parametrize("name", FORMAT_NAMES)
def test_a_named_tool_is_the_only_one(name: str) -> None:
    grammars = choose_format(None, name).constraint(TOOLS, ToolChoice("required", "note")).grammars
    assert [accepts(grammar, ONE[name]) for grammar in grammars] == [False] * len(grammars)


@pytest.mark.parametrize("name", FORMAT_NAMES)
def test_what_is_no_call_is_refused(name: str) -> None:
    for grammar in choose_format(None, name).constraint(TOOLS, ANY).grammars:
        for text in ("", "Hello!", f" {ONE[name]}", f"{ONE[name]}!", ONE[name][:-1]):
            assert not accepts(grammar, text)
        assert not accepts(grammar, ONE[name].replace("get_weather", "get_whether"))


WRONG_TYPE: dict[str, str] = {
    **{name: text.replace('"Paris"', "5") for name, text in ONE.items()},
    "qwen3-coder": xml("get_weather", ("city", "Paris"), ("days", "few")),
    "glm": glm("get_weather", ("city", "Paris"), ("days", "few")),
}


@pytest.mark.parametrize("name", FORMAT_NAMES)
def test_the_strictest_grammar_knows_the_schema(name: str) -> None:
    grammars = choose_format(None, name).constraint(TOOLS, ANY).grammars
    for wrong in (ONE[name].replace("city", "town"), WRONG_TYPE[name]):
        assert not accepts(grammars[0], wrong)
        assert accepts(grammars[-1], wrong)


AGENTS_SCHEMA: dict[str, Any] = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "properties": {
        "city": {"type": ["string", "null"], "format": "place", "minLength": 1, "default": "x"},
        "one": {"oneOf": [{"type": "integer", "minimum": 3}, {"type": "boolean"}]},
        "all": {"allOf": [{"$ref": "#/$defs/size"}, {"exclusiveMinimum": 0}]},
        "map": {"type": "object", "propertyNames": {"pattern": "^x"}, "additionalProperties": {"const": 1}},
        "const": {"const": "fixed"},
        "mixed": {"enum": ["a", 1, None]},
        "pattern": {"type": "string", "pattern": "^[a-z]+$"},
    },
    "$defs": {"size": {"type": "number", "maximum": 10}},
    "required": ["city"],
    "additionalProperties": False,
}
HARD_SCHEMAS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "agents": AGENTS_SCHEMA,
    "look-around": {"type": "object", "properties": {"city": {"type": "string", "pattern": "^(?=P)"}}},
    "not a pattern": {"type": "object", "properties": {"city": {"type": "string", "pattern": "(?<x"}}},
    "far reference": {"type": "object", "properties": {"city": {"$ref": "https://example.com/city"}}},
    "no reference": {"type": "object", "properties": {"city": {"$ref": "#/nowhere"}}},
    "unknown type": {"type": "object", "properties": {"city": {"type": "town"}}},
    "unsatisfiable": {
        "type": "object",
        "properties": {"city": {"allOf": [{"type": "string"}, {"type": "integer"}]}},
        "required": ["city"],
    },
    "no schema": {"properties": 5, "required": "city"},
    "more than an object": {"type": ["object", "null"], "properties": {"city": {"type": "string"}}},
    "any city": {"type": "object", "properties": {"city": True}},
}


@pytest.mark.parametrize("schema", HARD_SCHEMAS.values(), ids=HARD_SCHEMAS)
@pytest.mark.parametrize("name", FORMAT_NAMES)
def test_a_hard_schema_is_laxer_not_an_error(name: str, schema: dict[str, Any]) -> None:
    grammars = choose_format(None, name).constraint([Tool("get_weather", "", schema)], ANY).grammars
    compiled = [text for text in grammars if not LLMatcher(TOKENIZER, text, log_level=0).is_error()]
    assert grammars[-1] in compiled
    assert accepts(compiled[0], ONE[name])
    assert not accepts(compiled[0], ONE[name].replace("get_weather", "other"))


def test_bounds_give_way_before_the_schema_does() -> None:
    grammars = (
        choose_format(None, "hermes")
        .constraint([Tool("get_weather", "", HARD_SCHEMAS["look-around"] | {"required": ["city"]})], ANY)
        .grammars
    )
    assert [LLMatcher(TOKENIZER, text, log_level=0).is_error() for text in grammars] == [True, False, False]
    assert not accepts(grammars[1], ONE["hermes"].replace("city", "town"))
    assert accepts(grammars[2], ONE["hermes"].replace("city", "town"))


MISTAKES: dict[str, dict[str, Any]] = {
    "no reference": {"properties": {"b": {"$ref": "#/$defs/nowhere"}}},
    "no reference in a list": {"properties": {"b": {"anyOf": [{"$ref": "#/$defs/a/b"}, {"type": "null"}]}}},
    "unknown type": {"properties": {"b": {"type": "town"}}},
    "no types": {"properties": {"b": {"type": []}}},
    "nothing to choose from": {"properties": {"b": {"enum": []}}, "required": ["b"]},
    "no alternatives": {"properties": {"b": {"anyOf": []}}},
    "no schema": {"properties": {"b": 5}},
    "a list of properties": {"properties": []},
    "one required name": {"properties": {"b": {}}, "required": "b"},
}


@pytest.mark.parametrize("schema", MISTAKES.values(), ids=MISTAKES)
def test_one_mistake_does_not_cost_the_other_tools_their_schemas(schema: dict[str, Any]) -> None:
    tools = [NOTE, Tool("odd", "", {"type": "object"} | schema)]
    grammars = choose_format(None, "hermes").constraint(tools, ANY).grammars
    compiled = [text for text in grammars if not LLMatcher(TOKENIZER, text, log_level=0).is_error()]
    assert accepts(compiled[0], hermes('{"text": "x"}'))
    assert not accepts(compiled[0], hermes('{"town": "x"}'))
    assert not accepts(compiled[0], hermes('{"text": {}}'))


def test_a_reference_that_leads_somewhere_stays() -> None:
    schema = {
        "type": "object",
        "properties": {"text": {"$ref": "#/$defs/a~1b%20c"}, "more": {"$ref": "#"}, "far": {"$ref": "x:y"}},
        "$defs": {"a/b c": {"type": "string", "pattern": "(?=x)"}},
        "required": ["text"],
    }
    grammars = choose_format(None, "hermes").constraint([Tool("note", "", schema)], ANY).grammars
    assert accepts(grammars[1], hermes('{"text": "x", "more": {"text": "y"}}'))
    assert not accepts(grammars[1], hermes('{"text": 5}'))


ODD_NAME = 'a"\\/é-b.c\n'


@pytest.mark.parametrize("name", FORMAT_NAMES)
def test_names_cannot_break_the_grammar(name: str) -> None:
    tool = Tool(ODD_NAME, "", {"type": "object", "properties": {ODD_NAME: {"type": "integer"}}})
    for grammar in choose_format(None, name).constraint([tool, WEATHER], ANY).grammars:
        assert accepts(grammar, ONE[name])


def test_an_odd_name_is_called_as_json_writes_it() -> None:
    tool = Tool(ODD_NAME)
    text = hermes("{}", json.dumps(ODD_NAME, ensure_ascii=False)[1:-1])
    for grammar in choose_format(None, "hermes").constraint([tool], ANY).grammars:
        assert accepts(grammar, text)
    assert read(reader("hermes", [tool]), [text]) == (Call(ODD_NAME, "{}"),)


def test_arguments_may_stand_in_the_schema_s_order_with_any_optional_one_left_out() -> None:
    properties = {name: {"type": "integer"} for name in "abc"}
    tool = Tool("f", "", {"type": "object", "properties": properties, "required": ["b"]})
    strictest = choose_format(None, "lfm2").constraint([tool], ANY).grammars[0]
    taken = [
        listed
        for listed in (
            "",
            "a=1",
            "b=1",
            "a=1, b=1",
            "b=1, c=1",
            "a=1, b=1, c=1",
            "b=1, a=1",
            "a=1, c=1",
            ", b=1",
        )
        if accepts(strictest, f"<|tool_call_start|>[f({listed})]<|tool_call_end|>")
    ]
    assert taken == ["b=1", "a=1, b=1", "b=1, c=1", "a=1, b=1, c=1"]


@pytest.mark.parametrize("name", [name for name in FORMAT_NAMES if '"city": ' in ONE[name]])
def test_white_space_cannot_go_on_for_ever(name: str) -> None:
    strictest = choose_format(None, name).constraint([WEATHER, NOTE, PING], ANY).grammars[0]
    assert accepts(strictest, ONE[name].replace('"Paris"', '  "Paris"'))
    assert not accepts(strictest, ONE[name].replace('"Paris"', " " * 100 + '"Paris"'))


def test_glm_may_leave_out_line_breaks() -> None:
    for grammar in choose_format(None, "glm").constraint(TOOLS, ANY).grammars:
        text = glm("get_weather", ("city", "a\nb"), gap="")
        assert accepts(grammar, text)
        assert read(reader("glm"), [text]) == (Call("get_weather", '{"city": "a\\nb"}'),)


def test_harmony_may_start_a_message_first() -> None:
    """After thinking the model has left its message."""
    strictest = choose_format(None, "harmony").constraint(TOOLS, ANY).grammars[0]
    assert accepts(strictest, f"<|start|>assistant{ONE['harmony']}")


CLOSERS = ('"', "}", "]", ")", "</parameter>\n", "</arg_value>\n")


def wander(grammar: str, chance: random.Random) -> str:
    """A text that the grammar takes, by chance."""
    found = matcher(grammar)
    written = bytearray()
    while not (found.is_stopped() or (found.is_accepting() and chance.random() < 0.5)):
        closer = list(chance.choice(CLOSERS).encode())
        mask = found.compute_logit_bias()
        step = closer if found.validate_tokens(closer) == len(closer) else [chance.choice(allowed(mask))]
        assert found.consume_tokens(step), found.get_error()
        written += bytes(step)
    return written.decode()


def allowed(mask: bytes) -> list[int]:
    """The bytes that may come next; those of plain ASCII where there are any."""
    choices = [token for token in range(256) if mask[token]]
    return [token for token in choices if token < 128] or choices


@pytest.mark.parametrize("name", FORMAT_NAMES)
def test_whatever_a_grammar_takes_is_read_as_calls_and_nothing_else(name: str) -> None:
    chance = random.Random(name)
    for grammar in choose_format(None, name).constraint(TOOLS, ANY).grammars * 20:
        text = wander(grammar, chance)
        blocks = read(reader(name), [text])
        assert {type(block) for block in blocks} == {Call}, text
        assert all(
            isinstance(json.loads(block.arguments), dict) for block in blocks if isinstance(block, Call)
        )
        assert len(blocks) == calls_in(name, text)


def calls_in(name: str, text: str) -> int:
    """How many calls the text has, counted by what stands once in each."""
    if name == "lfm2":
        return sum(text.count(f"{before}{tool.name}(") for tool in TOOLS for before in ("[", ", "))
    mark = {"qwen3-coder": "<function=", "glm": "<tool_call>", "mistral-args": "[ARGS]", "harmony": "to="}
    other = {"deepseek-v3": "```json", "deepseek-v3.1": "<｜tool▁sep｜>"}  # noqa: RUF001
    return text.count({**mark, **other}.get(name, '{"name": '))
