"""Conversations with tools on templates in the style of the families."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mashbox.chat.formats import plain
from mashbox.chat.template import ChatTemplate
from mashbox.chat.traits import (
    CallForm,
    CallText,
    EmptyContent,
    SystemPlace,
    TemplateTraits,
    ThinkingPlace,
)
from mashbox.chat.types import Message, Tool, ToolCall
from mashbox.engine.types import Segment

FOLDER = Path(__file__).parent / "templates" / "tools"
BAR = "\uff5c"
CONTROL = (
    *("<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|start|>", "<|message|>", "<|channel|>", "<|end|>"),
    *("<|call|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<think>", "</think>"),
    *("[INST]", "[/INST]", "[TOOL_CALLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[ARGS]", "[THINK]"),
    *("[/THINK]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "<tool_call>", "</tool_call>", "PAD"),
    *("<arg_key>", "</arg_key>", "<start_of_turn>", "<end_of_turn>", "<|assistant|>", "<|user|>"),
    *("<|observation|>", "<tool_response>", f"<{BAR}User{BAR}>", f"<{BAR}tool\u2581sep{BAR}>"),
)


def build(name: str) -> ChatTemplate:
    source = (FOLDER / f"{name}.jinja").read_text()
    return ChatTemplate(source, bos="<s>", eos="</s>", control_tokens=CONTROL)


FAMILIES = sorted(path.stem for path in FOLDER.glob("*.jinja"))
BUILT = {name: build(name) for name in FAMILIES}
EASY = TemplateTraits()
TURNS = {"repeated_roles": False, "assistant_first": False}


@pytest.mark.parametrize(
    ("name", "traits"),
    [
        ("qwen3", {}),
        ("glm", {"any_arguments": False}),
        ("blocks", {"thinking": ThinkingPlace.PART}),
        ("llama3", {"system_alone": False, "parallel_calls": False, "call_text": CallText.BEFORE}),
        (
            "mistral",
            {
                **TURNS,
                "system": SystemPlace.NOWHERE,
                "system_alone": False,
                "open_calls": False,
                "user_after_results": False,
                "call_text": CallText.NOWHERE,
            },
        ),
        (
            "deepseek",
            {"calls": CallForm.TEXT, "empty_content": EmptyContent.NONE, "call_text": CallText.BEFORE},
        ),
        (
            "harmony",
            {"parallel_calls": False, "thinking": ThinkingPlace.THINKING, "thinking_beside_text": False},
        ),
        ("pythonic", {"any_schema": False, "calls": CallForm.NOWHERE}),
        ("untaught", {"tools": None, "calls": CallForm.NOWHERE}),
        (
            "gemma",
            {
                **TURNS,
                "system": SystemPlace.NOWHERE,
                "system_alone": False,
                "tool_role": False,
                "tools": None,
                "calls": CallForm.NOWHERE,
            },
        ),
    ],
)
def test_traits(name: str, traits: dict[str, Any]) -> None:
    assert BUILT[name].tool_traits == replace(EASY, **traits)


def test_a_template_that_must_have_a_list_of_tools() -> None:
    source = (
        "{% for t in tools %}{{ t | tojson }}{% endfor %}{% for m in messages %}[{{ m.content }}]{% endfor %}"
    )
    template = ChatTemplate(source, bos="", eos="", control_tokens=())
    assert template.traits.tools_listed
    assert joined(template.render((Message("user", "U"),))) == "[U]"


@pytest.mark.parametrize("variable", ["tools", "xml_tools", "custom_tools"])
def test_tools_go_where_the_template_reads_them(variable: str) -> None:
    source = f"{{{{ {variable} | tojson }}}}{{% for m in messages %}}{{{{ m.content }}}}{{% endfor %}}"
    template = ChatTemplate(source, bos="", eos="", control_tokens=())
    assert template.tool_traits.tools == variable
    assert '"name": "look"' in joined(template.render((Message("user", "U"),), TOOLS))


def test_a_dict_in_pythons_notation_is_not_taken_for_json() -> None:
    source = """{{ tools | tojson }}{% for m in messages %}{{ m.content }}
    {%- for c in m.tool_calls %}{{ c.function.name ~ c.function.arguments }}{% endfor %}{% endfor %}"""
    template = ChatTemplate(source, bos="", eos="", control_tokens=())
    assert template.tool_traits.calls is CallForm.TEXT


SCHEMA = {
    "type": "object",
    "properties": {"path": {"type": "string"}, "n": {"type": ["integer", "null"]}},
    "required": ["path"],
}
TOOLS = (Tool("look", "Looks it up.", SCHEMA), Tool("stop"))


def call(call_id: str, name: str = "look", arguments: str = '{"path": "P"}') -> ToolCall:
    return ToolCall(call_id, name, arguments)


def talk(first: str = "x", second: str = "y", third: str = "z") -> tuple[Message, ...]:
    """A conversation with everything: its calls have these ids."""
    return (
        Message("system", "S1"),
        Message("user", "U1"),
        Message(
            "assistant", "A1", tool_calls=(call(first, "look", '{"path": "P1"}'), call(second, "stop", "{}"))
        ),
        Message("tool", "R2", tool_call_id=second),
        Message("tool", "R1", tool_call_id=first),
        Message("user", "U2"),
        Message("assistant", "A2"),
        Message("system", "S2"),
        Message("user", "U3"),
        Message("assistant", "", tool_calls=(call(third, "look", '{"path": "P3"}'),)),
        Message("tool", "R3", tool_call_id=third),
        Message("tool", "R4", tool_call_id="nowhere"),
    )


def joined(segments: Sequence[Segment]) -> str:
    return "".join(segment.text for segment in segments)


@pytest.mark.parametrize("name", ["qwen3", "glm", "harmony", "blocks"])
def test_a_control_token_of_letters_hides_no_key(name: str) -> None:
    """Its letters are swapped in all that a request says, but not in the keys a template looks up."""
    source = (FOLDER / f"{name}.jinja").read_text()
    template = ChatTemplate(source, bos="<s>", eos="</s>", control_tokens=("<s>", "pate"))
    assert template.tool_traits == BUILT[name].tool_traits
    messages = (*talk(), Message("user", "a pate b"))
    segments = template.render(messages, TOOLS)
    assert joined(segments) == joined(BUILT[name].render(messages, TOOLS))
    assert Segment("pate", False) in segments


@pytest.mark.parametrize("tools", [(), TOOLS], ids=["bare", "tools"])
@pytest.mark.parametrize("name", FAMILIES)
def test_everything_is_shown_and_in_order(name: str, tools: tuple[Tool, ...]) -> None:
    text = joined(BUILT[name].render(talk(), tools))
    words = ["U1", "A1", "P1", "R1", "R2", "U2", "A2", "U3", "P3", "R3", "R4"]
    if name == "mistral":
        words.remove("A1")  # has no room for text beside calls
    places = [text.index(word) for word in words]
    assert places == sorted(places)
    assert "S1" in text
    assert "S2" in text
    for tool in tools:
        assert tool.name in text
        assert tool.description in text


@pytest.mark.parametrize("name", FAMILIES)
def test_ids_make_no_difference(name: str) -> None:
    expected = BUILT[name].render(talk(), TOOLS)
    assert BUILT[name].render(talk("call_9f8e7d", "toolu_1", "x"), TOOLS) == expected
    assert BUILT[name].render(talk("b", "a", "a"), TOOLS) == expected


LOOP = (
    Message("system", "S"),
    Message("user", "U"),
    Message("assistant", "", tool_calls=(call("a"),)),
    Message("tool", "R", tool_call_id="a"),
    Message("assistant", "", tool_calls=(call("b"),)),
    Message("tool", "R", tool_call_id="b"),
    Message("assistant", "A"),
    Message("user", "V"),
    Message("assistant", "", tool_calls=(call("c"),)),
    Message("tool", "R", tool_call_id="c"),
)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_turn_is_a_prefix_of_the_next_one(name: str) -> None:
    """All stops at which a client asks for an answer."""
    stops = [2, 4, 6] if name == "mistral" else [2, 4, 6, 8, 10]  # it moves the tools to the latest question
    ask = name != "deepseek"  # opens a block that it does not show afterwards
    prompts = [joined(BUILT[name].render(LOOP[:n], TOOLS, add_generation_prompt=ask)) for n in stops]
    for earlier, later in pairwise(prompts):
        assert later.startswith(earlier)


def test_one_call_a_message_keeps_results_beside_their_calls() -> None:
    text = joined(BUILT["llama3"].render(talk()[1:5], TOOLS))
    answer = "<|start_header_id|>assistant<|end_header_id|>\n\n"
    call = answer + '{"name": "'
    result = "<|start_header_id|>ipython<|end_header_id|>\n\n"
    assert text.endswith(
        f'U1<|eot_id|>{answer}A1<|eot_id|>{call}look", "parameters": {{"path": "P1"}}}}<|eot_id|>'
        f'{result}"R1"<|eot_id|>{call}stop", "parameters": {{}}}}<|eot_id|>{result}"R2"<|eot_id|>{answer}'
    )


def test_a_template_without_tools_is_told_in_words() -> None:
    text = joined(BUILT["gemma"].render(talk()[:5], TOOLS))
    calls = plain.write_call("look", '{"path": "P1"}') + "\n" + plain.write_call("stop", "{}")
    results = plain.write_result("look", "R1") + "\n\n" + plain.write_result("stop", "R2")
    assert text == (
        f"<s><start_of_turn>user\nS1\n\n{plain.describe(TOOLS)}\n\nU1<end_of_turn>\n"
        f"<start_of_turn>model\nA1\n{calls}<end_of_turn>\n"
        f"<start_of_turn>user\n{results}<end_of_turn>\n<start_of_turn>model\n"
    )


def test_a_call_nobody_answered_is_told_in_words_where_it_is_not_taken() -> None:
    messages = (Message("user", "U"), Message("assistant", "", tool_calls=(call("a"),)), Message("user", "V"))
    text = joined(BUILT["mistral"].render(messages, TOOLS))
    assert "[INST]U[/INST]" + plain.write_call("look", '{"path": "P"}') + "</s>" in text
    assert "[TOOL_CALLS]" in joined(BUILT["mistral"].render(messages[:2], TOOLS))


def test_text_of_a_user_joins_the_result_where_it_is_not_taken() -> None:
    messages = (*LOOP[:4], Message("user", "V"))
    assert '{"content": R\n\nV, "call_id": "call00001"}' in joined(BUILT["mistral"].render(messages, TOOLS))


THOUGHTFUL = (
    Message("user", "U"),
    Message("assistant", "A", thinking="T1", tool_calls=(call("a"),)),
    Message("tool", "R", tool_call_id="a"),
)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("qwen3", "assistant\n<think>\nT1\n</think>\n\nA\n<tool_call>"),
        ("glm", "<think>T1</think>\nA\n<tool_call>look"),
        ("blocks", "[THINK]T1[/THINK]A[TOOL_CALLS]look"),
        ("harmony", "<|channel|>analysis<|message|>T1\n\nA<|end|><|start|>assistant to=functions.look"),
    ],
)
def test_thinking_is_where_the_template_wants_it(name: str, expected: str) -> None:
    assert expected in joined(BUILT[name].render(THOUGHTFUL, TOOLS))


def test_thinking_of_earlier_turns_is_the_templates_to_drop() -> None:
    later = (*THOUGHTFUL, Message("assistant", "B", thinking="T2"), Message("user", "V"))
    assert not re.search("T[12]", joined(BUILT["qwen3"].render(later, TOOLS)))


NASTY = st.lists(
    st.sampled_from(
        [*CONTROL, "<|im_", "end|>", "<", ">", "|", "[", "]", "/", "a", " ", "\n", '"', "\\", "é", "'", "P"]
    ),
    max_size=6,
).map("".join)


@pytest.mark.parametrize("name", [name for name in FAMILIES if name not in ("deepseek", "qwen3")])
def test_nothing_of_a_request_becomes_a_control_token(name: str) -> None:
    """The two left out cut thinking out of a text, or look for it, so the text decides what is written."""

    @given(NASTY, NASTY, NASTY, NASTY)
    def check(text: str, value: str, described: str, key: str) -> None:
        def render(text: str, value: str, described: str, key: str) -> list[str]:
            schema = {
                "type": "object",
                "properties": {f"k{key}": {"type": "string", "description": described}},
            }
            tools = (Tool(f"t{text}", f"d{described}", schema),)
            arguments = json_object(f"k{key}", f"v{value}")
            messages = (
                Message("system", f"s{text}"),
                Message("user", f"u{text}"),
                Message("assistant", f"a{text}", f"h{value}", (ToolCall("1", f"t{text}", arguments),)),
                Message("tool", f"r{value}", tool_call_id="1"),
            )
            special = "\0".join(s.text for s in BUILT[name].render(messages, tools) if s.parse_special)
            words = "|".join(map(re.escape, sorted(CONTROL, key=len, reverse=True)))
            return re.findall(words, special)

        assert render(text, value, described, key) == render("x", "x", "x", "x")

    check()


def json_object(key: str, value: str) -> str:
    quoted = [text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") for text in (key, value)]
    return f'{{"{quoted[0]}": "{quoted[1]}"}}'
