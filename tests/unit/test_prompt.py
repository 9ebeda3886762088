"""From a request to the engine's side of it: segments, thinking, constraint, what is visible, the parser."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mashbox.chat.formats import plain
from mashbox.chat.prompt import ChatFormat, Prompt, answer_parser, build_prompt, render
from mashbox.chat.template import ChatTemplate
from mashbox.chat.types import (
    Call,
    ChatRequest,
    GenerateOptions,
    Message,
    Text,
    Thinking,
    ThinkingWish,
    Tool,
    ToolChoice,
)
from mashbox.engine.types import Sampling, Segment, TextDelta
from mashbox.errors import ConfigError, InvalidRequestError

FOLDER = Path(__file__).parent / "templates" / "tools"
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}
TOOLS = (Tool("look", "Looks it up.", SCHEMA), Tool("stop"))
USER = (Message("user", "U"),)
REQUIRED = ToolChoice("required")


def chat(name: str, tool_format: str | None = None) -> ChatFormat:
    source = (FOLDER / f"{name}.jinja").read_text()
    control = ("<|im_start|>", "<|im_end|>", "<s>", "</s>", "<think>", "</think>")
    template = ChatTemplate(source, bos="<s>", eos="</s>", control_tokens=control)
    return ChatFormat.of(template, tool_format=tool_format)


FORMATS = {path.stem: chat(path.stem) for path in FOLDER.glob("*.jinja")}


def ask(**fields: Any) -> ChatRequest:
    return ChatRequest(fields.pop("messages", USER), GenerateOptions(Sampling()), **fields)


def prompt(name: str, **fields: Any) -> Prompt:
    return build_prompt(FORMATS[name], ask(**fields))


def text(prompt: Prompt) -> str:
    return "".join(segment.text for segment in prompt.segments)


def read(name: str, *deltas: TextDelta, **fields: Any) -> list[Thinking | Text | Call]:
    parser = answer_parser(FORMATS[name].tools, ask(**fields))
    events = [event for delta in deltas for event in parser.feed(delta)]
    return [*events, *parser.finish()]


@pytest.mark.parametrize(
    ("name", "tool_format"),
    [("qwen3", "hermes"), ("llama3", "llama3"), ("glm", "glm"), ("harmony", "harmony"), ("gemma", "plain")],
)
def test_the_tool_format_fits_the_template(name: str, tool_format: str) -> None:
    assert FORMATS[name].tools.name == tool_format


def test_the_tool_format_by_name() -> None:
    assert chat("gemma", "hermes").tools.name == "hermes"
    with pytest.raises(ConfigError, match="nope"):
        chat("gemma", "nope")


def test_tools_in_a_way_that_no_format_reads_are_told_in_words() -> None:
    source = "{{ tools | tojson }}{% for m in messages %}[{{ m.content }}]{% endfor %}"
    template = ChatTemplate(source, bos="", eos="", control_tokens=())
    chat = ChatFormat.of(template)
    assert chat.tools.name == "plain"
    told = build_prompt(chat, ask(tools=TOOLS))
    assert text(told) == f"null[{plain.describe(TOOLS)}][U]"
    by_name = build_prompt(ChatFormat.of(template, tool_format="hermes"), ask(tools=TOOLS))
    assert text(by_name).startswith('[{"type": "function"')


def test_without_tools_nothing_is_read_as_a_call() -> None:
    plain = prompt("qwen3")
    assert (plain.visible, plain.constraint) == ((), None)
    written = '<tool_call>{"name": "look", "arguments": {}}</tool_call>'
    assert read("qwen3", TextDelta("", written)) == [Text(written)]
    assert read("qwen3", TextDelta("", written), tools=TOOLS) == [Call("look", "{}")]


def test_choice_none_is_as_if_there_were_no_tools() -> None:
    fields = {"tools": TOOLS, "tool_choice": ToolChoice("none")}
    none = prompt("qwen3", **fields)
    assert none.segments == prompt("qwen3").segments
    assert none.visible == ()
    assert read("qwen3", TextDelta("", "<tool_call>"), **fields) == [Text("<tool_call>")]


def test_a_format_that_is_always_needed_reads_answers_without_tools() -> None:
    harmony = prompt("harmony")
    assert harmony.visible == FORMATS["harmony"].tools.visible
    assert read("harmony", TextDelta("", "<|channel|>final<|message|>Hi")) == [Text("Hi")]


@pytest.mark.parametrize("choice", [REQUIRED, ToolChoice("required", "stop")])
def test_required_calls_are_constrained(choice: ToolChoice) -> None:
    built = prompt("qwen3", tools=TOOLS, tool_choice=choice)
    assert built.constraint == FORMATS["qwen3"].tools.constraint(TOOLS, choice)
    assert built.segments == prompt("qwen3", tools=TOOLS).segments
    assert prompt("qwen3", tools=TOOLS).constraint is None


ON, OFF = ThinkingWish(on=True), ThinkingWish(on=False)


@pytest.mark.parametrize(
    ("name", "wish", "end", "inside"),
    [
        ("qwen3", ThinkingWish(), "assistant\n", False),
        ("qwen3", ON, "assistant\n", False),
        ("qwen3", OFF, "assistant\n<think>\n\n</think>\n\n", False),
        ("deepseek", ThinkingWish(), "<think>\n", True),
        ("deepseek", ON, "<think>\n", True),
        ("deepseek", OFF, "<think>\n\n</think>\n\n", False),
        ("glm", OFF, "<|assistant|>\n<think></think>", False),
    ],
)
def test_thinking_at_the_prompts_end(name: str, wish: ThinkingWish, end: str, inside: bool) -> None:
    built = prompt(name, thinking=wish)
    assert text(built).endswith(end)
    assert built.segments[-1].parse_special
    assert built.reasoning is not None
    assert built.reasoning.inside is inside


@pytest.mark.parametrize(
    ("wish", "budget"), [(ThinkingWish(), None), (ON, None), (OFF, 0), (ThinkingWish(True, 64), 64)]
)
def test_the_budget_of_thinking(wish: ThinkingWish, budget: int | None) -> None:
    reasoning = prompt("qwen3", thinking=wish).reasoning
    assert reasoning is not None
    assert (reasoning.opener, reasoning.closer, reasoning.closing) == (
        "<think>",
        "</think>",
        "\n</think>\n\n",
    )
    assert (reasoning.inside, reasoning.budget) == (False, budget)


def test_a_model_without_marks_does_not_think() -> None:
    template = ChatTemplate("{{ messages[0].content }}", bos="", eos="", control_tokens=("<s>",))
    built = build_prompt(ChatFormat.of(template), ask(thinking=ON))
    assert built.reasoning is None
    assert text(built) == "U"


def test_thinking_comes_before_a_required_call() -> None:
    asked = {"tools": TOOLS, "tool_choice": REQUIRED, "thinking": ON}
    for name, opening in {
        "qwen3": "<|im_start|>assistant\n<think>\n",
        "glm": "<|assistant|><think>",
        "harmony": "<|start|>assistant<|channel|>analysis<|message|>",
        "deepseek": "<think>\n",
    }.items():
        built = prompt(name, **asked)
        assert text(built).endswith(opening)
        assert built.reasoning is not None
        assert built.reasoning.inside


def test_only_a_template_that_knows_the_marks_is_made_to_think() -> None:
    source = "<tool_call>{{ tools | tojson }}{% for m in messages %}{{ m.content }}{% endfor %}"
    template = ChatTemplate(source, bos="", eos="", control_tokens=("<think>", "</think>"))
    built = build_prompt(ChatFormat.of(template), ask(tools=TOOLS, tool_choice=REQUIRED, thinking=ON))
    assert built.reasoning is not None
    assert not built.reasoning.inside


def test_an_opener_that_a_user_types_opens_nothing() -> None:
    source = "<think>{% for m in messages %}{{ m.content }}{% endfor %}"
    template = ChatTemplate(source, bos="", eos="", control_tokens=("<think>", "</think>"))
    built = build_prompt(ChatFormat.of(template), ask(messages=(Message("user", "a <think>"),), thinking=OFF))
    assert built.segments == (Segment("<think>a ", True), Segment("<think>", False))
    assert built.reasoning is not None
    assert not built.reasoning.inside


def test_thinking_is_kept_unless_it_is_not_wanted() -> None:
    deltas = (TextDelta("", "hm", thinking=True), TextDelta("", "yes"))
    for wish in (ThinkingWish(), ON):
        assert read("qwen3", *deltas, thinking=wish) == [Thinking("hm"), Text("yes")]
    assert read("qwen3", *deltas, thinking=OFF) == [Text("yes")]


@pytest.mark.parametrize(
    ("wish", "expected"),
    [
        (ON, '[true, true, "enabled", "-"]'),
        (OFF, '[false, false, "disabled", 0]'),
        (ThinkingWish(True, 9), '[true, true, "enabled", 9]'),
        (ThinkingWish(), '["-", "-", "-", "-"]'),
    ],
)
def test_what_templates_are_told_about_thinking(wish: ThinkingWish, expected: str) -> None:
    names = ("enable_thinking", "thinking", "thinking_mode", "thinking_budget")
    source = "{{ [" + ", ".join(f"{name} | default('-')" for name in names) + "] | tojson }}"
    template = ChatTemplate(source, bos="", eos="", control_tokens=())
    assert text(build_prompt(ChatFormat.of(template), ask(thinking=wish))) == expected


def test_the_requests_own_variables_win() -> None:
    template = ChatTemplate("{{ thinking }}{{ reasoning_effort }}", bos="", eos="", control_tokens=())
    request = ask(thinking=ON, template_kwargs={"thinking": "deep", "reasoning_effort": "high"})
    assert text(build_prompt(ChatFormat.of(template), request)) == "deephigh"
    for name in ("tools", "messages"):
        with pytest.raises(InvalidRequestError, match=name):
            render(ChatFormat.of(template), ask(tools=TOOLS, template_kwargs={name: []}))


@pytest.mark.parametrize("name", sorted(FORMATS))
@pytest.mark.parametrize("wish", [ThinkingWish(), ON, OFF])
@pytest.mark.parametrize("choice", [ToolChoice(), ToolChoice("none"), REQUIRED])
def test_what_is_counted_is_what_is_sent(name: str, wish: ThinkingWish, choice: ToolChoice) -> None:
    request = ask(tools=TOOLS, tool_choice=choice, thinking=wish)
    assert render(FORMATS[name], request) == build_prompt(FORMATS[name], request).segments
    longer = replace(request, messages=(*USER, Message("assistant", "A"), *USER))
    assert render(FORMATS[name], longer) == build_prompt(FORMATS[name], longer).segments
