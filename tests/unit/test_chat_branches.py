"""Where prompts may part: places in rendered prompts, on templates in the style of the families."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mashbox.chat.branches import NEAR
from mashbox.chat.prompt import ChatFormat, build_prompt, render
from mashbox.chat.template import ChatTemplate
from mashbox.chat.types import ChatRequest, GenerateOptions, Message, Tool, ToolCall
from mashbox.engine.types import Sampling
from tests.unit import test_prompt

FORMATS = {name: replace(chat, branching=True) for name, chat in test_prompt.FORMATS.items()}
TOOLS = (Tool("look", "Looks it up. " * 40, test_prompt.SCHEMA), Tool("stop"))

SYSTEM = Message("system", "SYS")
FIRST, SECOND = Message("user", "first question"), Message("user", "second question")
ANSWER = Message("assistant", "an answe")


def calling(*ids: str) -> Message:
    calls = tuple(ToolCall(name, "look", '{"path": "x"}') for name in ids)
    return Message("assistant", "", thinking="hm", tool_calls=calls)


def result(call_id: str, text: str | None = None) -> Message:
    return Message("tool", f"result {call_id}" if text is None else text, tool_call_id=call_id)


LOOP = (SYSTEM, FIRST, ANSWER, SECOND, calling("A", "B"), result("A"), result("B"), calling("C"), result("C"))


def own(source: str) -> ChatFormat:
    template = ChatTemplate(source, bos="<s>", eos="</s>", control_tokens=("<s>", "</s>"))
    return ChatFormat.of(template, branching=True)


PLAIN = own("{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}")
TRIMMING = own("{% for m in messages %}{{ m.role }}:{{ m.content | trim }};{% endfor %}")
"""Show no tools: their results are told as user messages."""


def ask(messages: Sequence[Message], **fields: Any) -> ChatRequest:
    return ChatRequest(tuple(messages), GenerateOptions(Sampling()), **fields)


def text_of(chat: ChatFormat, request: ChatRequest) -> str:
    return "".join(segment.text for segment in render(chat, request))


def same_length(one: str, other: str) -> int:
    """How many characters are the same from the start."""
    return len(list(takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))))


def ahead(chat: ChatFormat, messages: Sequence[Message], **fields: Any) -> list[str]:
    """What stands right behind each branch: eight characters, without the white space in front."""
    request = ask(messages, **fields)
    text = text_of(chat, request)
    return [text[place:].lstrip()[:8] for place in build_prompt(chat, request).branches]


@pytest.mark.parametrize("name", sorted(FORMATS.keys() - {"mistral"}))
def test_a_tool_loop_parts_at_the_first_message_and_at_the_last_turns(name: str) -> None:
    expected = ["first qu", "second q", "result A", "result C"]
    assert ahead(FORMATS[name], LOOP, tools=TOOLS) == expected


def test_what_a_template_puts_before_the_last_question_is_parted_from_as_well() -> None:
    """The tools stand there, and move on with the next question."""
    found = ahead(FORMATS["mistral"], LOOP, tools=TOOLS)
    assert found == ["first qu", "</s>[AVA", "second q", "result A", "result C"]
    grown = (*LOOP, ANSWER, Message("user", "third"))
    text, later = (text_of(FORMATS["mistral"], ask(messages, tools=TOOLS)) for messages in (LOOP, grown))
    branches = build_prompt(FORMATS["mistral"], ask(LOOP, tools=TOOLS)).branches
    shared = same_length(text, later)
    assert max(place for place in branches if place <= shared) > shared - 10


@pytest.mark.parametrize(("between", "more"), [("", []), ("=" * NEAR, [";======="])])
def test_a_short_way_between_messages_is_no_place_of_its_own(between: str, more: list[str]) -> None:
    chat = own("{% for m in messages %}" + between + "{{ m.role }}:{{ m.content }};{% endfor %}")
    assert ahead(chat, (FIRST, ANSWER, SECOND)) == ["first qu", *more, "second q"]


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ((SYSTEM,), []),
        ((), []),
        ((FIRST,), ["first qu"]),
        ((SYSTEM, FIRST, ANSWER), ["first qu"]),  # the assistant goes on
        ((SYSTEM, ANSWER, SECOND), ["an answe", "second q"]),
        ((SYSTEM, FIRST, SYSTEM, SECOND), ["first qu", "second q"]),
        ((FIRST, ANSWER, Message("user", " \n ")), ["first qu", ";user:"]),
        ((Message("user", ""), ANSWER, SECOND), ["an answe", "second q"]),
        ((FIRST, calling("A", "B"), result("B"), result("A")), ["first qu", "result A", "result B"]),
        ((FIRST, calling("A"), result("A", "")), ["first qu"]),
        ((FIRST, calling("A", "B"), result("A", ""), result("B")), ["first qu", "result B"]),
        ((FIRST, calling("A"), result("A"), SECOND), ["first qu", "result A", "second q"]),
    ],
)
@pytest.mark.parametrize("chat", [PLAIN, TRIMMING])
def test_which_messages_count(chat: ChatFormat, messages: Sequence[Message], expected: list[str]) -> None:
    found = ahead(chat, messages)
    assert [words[: len(start)] for words, start in zip(found, expected, strict=True)] == expected


def test_a_long_history_has_few_places() -> None:
    """The last user message is one of them, however long the model has worked on it."""
    turns = [Message(role, f"{role} {number}") for number in range(50) for role in ("user", "assistant")]
    loop = [message for name in "ABCDEFGH" for message in (calling(name), result(name))]
    found = ahead(FORMATS["qwen3"], [*turns, Message("user", "the last one"), *loop], tools=TOOLS)
    assert found == ["user 0<|", "the last", "result F", "result G", "result H"]


@pytest.mark.parametrize("white", ["", " ", "\n\n  "])
@pytest.mark.parametrize("chat", [PLAIN, TRIMMING])
def test_white_space_around_texts_moves_no_place_behind_it(chat: ChatFormat, white: str) -> None:
    conversation = [replace(message, content=f"{white}{message.content}{white}") for message in LOOP[:4]]
    request = ask(conversation)
    text = text_of(chat, request)
    assert [text[:place][-5:] for place in build_prompt(chat, request).branches] == ["user:", "user:"]


def test_texts_full_of_private_characters() -> None:
    """The marks are others then, also than the stand-ins of control characters."""
    every = "".join(map(chr, [*range(0xE000, 0xE040), *range(0xF880, 0xF900)])) + "<s>"
    conversation = (Message("user", every), ANSWER, Message("user", "\uf8ff"))
    request = ask(conversation)
    text = text_of(PLAIN, request)
    assert build_prompt(PLAIN, request).branches == (len("user:"), len(text) - len("\uf8ff;"))


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{% for m in messages %}{{ m.content }}|{{ m.content }};{% endfor %}", ["second q"]),  # twice
        (
            "{{ '%02d' % messages[0].content | length }}{% for m in messages %}{{ m.content }}{% endfor %}",
            ["4first q"],
        ),
        ("{% for m in messages %}({{ m.content | tojson(ensure_ascii=true) }}){% endfor %}", ["first qu"]),
        ("{% for m in messages %}{{ m.content }};{{ m.content | length }}{% endfor %}", ["4an answ"]),
        ("{% for m in messages %}{{ m.content[:5] }};{% endfor %}", ["t;an an;"]),
        (
            "{% for m in messages %}{% if '\uf8ff' in m.content %}{{ raise_exception('no') }}{% endif %}"
            "{{ m.content }}{% endfor %}",
            [],
        ),
    ],
)
def test_a_template_that_reacts_to_marks_gives_fewer_places(source: str, expected: list[str]) -> None:
    chat = own(source)
    request = ask((FIRST, ANSWER, SECOND))
    assert build_prompt(chat, request).segments == render(replace(chat, branching=False), request)
    assert ahead(chat, request.messages) == expected


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_only_models_that_need_them_get_branches(name: str) -> None:
    request = ask(LOOP, tools=TOOLS)
    plain = build_prompt(replace(FORMATS[name], branching=False), request)
    assert plain.branches == ()
    assert build_prompt(FORMATS[name], request).segments == plain.segments


TEXT = st.text(st.sampled_from("ab \n<|im_start|>\uf8ff\ue000é"), max_size=12)
ROLES = st.lists(st.sampled_from(["system", "user", "assistant"]), max_size=7)


@given(st.sampled_from(sorted(FORMATS)), ROLES, st.data())
def test_another_last_message_changes_nothing_before_the_branches(
    name: str, roles: list[str], data: st.DataObject
) -> None:
    history = [Message(role, data.draw(TEXT)) for role in roles]  # type: ignore[arg-type]
    # Unlike any message before: templates find the last one by comparing.
    texts = (data.draw(TEXT) + "?", data.draw(TEXT) + "!")
    request, other = (ask((*history, Message("user", text)), tools=TOOLS) for text in texts)
    shared = same_length(text_of(FORMATS[name], request), text_of(FORMATS[name], other))
    branches = build_prompt(FORMATS[name], request).branches
    assert list(branches) == sorted(set(branches))
    assert all(place <= shared for place in branches)
