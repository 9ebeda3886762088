"""Probing templates, and shaping conversations for them."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mashbox.chat.normalise import CONTINUE, normalise
from mashbox.chat.template import ChatTemplate
from mashbox.chat.traits import CallForm, CallText, SystemPlace, TemplateTraits, ThinkingPlace
from mashbox.chat.types import Message, Role, ToolCall

TEMPLATES = Path(__file__).parent / "templates"
EASY = TemplateTraits(tools=None, calls=CallForm.NOWHERE)
STRICT = TemplateTraits(
    tools=None,
    calls=CallForm.NOWHERE,
    system=SystemPlace.NOWHERE,
    system_alone=False,
    repeated_roles=False,
    assistant_first=False,
    assistant_last=False,
    empty_assistant=False,
    tool_role=False,
)


def build(source: str) -> ChatTemplate:
    return ChatTemplate(source, bos="<s>", eos="</s>", control_tokens=("<s>", "</s>", "[INST]", "[/INST]"))


def read(name: str) -> ChatTemplate:
    return build((TEMPLATES / f"{name}.jinja").read_text())


def talk(*pairs: tuple[Role, str]) -> tuple[Message, ...]:
    return tuple(Message(role, content) for role, content in pairs)


def test_traits_of_an_easy_going_template() -> None:
    assert read("chatml").traits == EASY
    assert read("thinking").traits == replace(EASY, thinking=ThinkingPlace.CONTENT)
    assert read("headers").traits == EASY


def test_traits_of_a_strict_template() -> None:
    expected = replace(STRICT, system=SystemPlace.FIRST)
    assert read("strict").traits == expected


def test_traits_of_a_template_without_system_role() -> None:
    assert read("turns").traits == replace(STRICT, assistant_last=True, empty_assistant=True)


def test_traits_of_a_template_with_content_parts() -> None:
    assert read("parts").traits == replace(EASY, content_parts=True)


def test_a_list_shown_as_python_is_not_content_parts() -> None:
    assert build("{{ messages[0].content[:3] }}").traits.content_parts is False


def test_the_last_system_message_wins_is_not_anywhere() -> None:
    source = """
    {%- set ns = namespace(system='') %}
    {%- for m in messages if m.role == 'system' %}{% set ns.system = m.content %}{% endfor %}
    {{- ns.system }}{% for m in messages if m.role != 'system' %}[{{ m.content }}]{% endfor %}"""
    assert build(source).traits.system is SystemPlace.FIRST


def test_a_template_that_drops_the_system_message_has_it_nowhere() -> None:
    source = "{% for m in messages if m.role != 'system' %}[{{ m.content }}]{% endfor %}"
    template = build(source)
    assert template.traits.system is SystemPlace.NOWHERE
    segments = template.render(talk(("system", "S"), ("user", "U")))
    assert "".join(segment.text for segment in segments) == "[S\n\nU]"


AWKWARD = talk(
    *(("assistant", "A0"), ("system", "S1"), ("system", "S2"), ("user", "U1"), ("user", "U2")),
    *(("assistant", ""), ("tool", "T1"), ("tool", "T2"), ("system", "S3"), ("assistant", "A1")),
)


@pytest.mark.parametrize("name", sorted(path.stem for path in TEMPLATES.glob("*.jinja")))
def test_every_template_shows_every_text_of_an_awkward_conversation(name: str) -> None:
    text = "".join(segment.text for segment in read(name).render(AWKWARD))
    assert all(message.content in text for message in AWKWARD)


def test_an_easy_going_template_gets_the_conversation_as_it_is() -> None:
    expected = tuple(replace(m, role="user") if m.role == "tool" else m for m in AWKWARD)
    assert normalise(AWKWARD, EASY) == expected  # nothing called for these results


def test_a_strict_template_gets_it_in_order() -> None:
    assert normalise(AWKWARD, STRICT) == talk(
        ("user", "S1\n\nS2\n\nS3"),
        ("assistant", "A0"),
        ("user", "U1\n\nU2\n\nT1\n\nT2"),
        ("assistant", "A1"),
        ("user", CONTINUE),
    )


def test_system_messages_are_joined_at_the_start() -> None:
    messages = talk(("user", "U"), ("system", "S1"), ("assistant", "A"), ("system", ""), ("system", "S2"))
    expected = talk(("system", "S1\n\nS2"), ("user", "U"), ("assistant", "A"))
    assert normalise(messages, replace(EASY, system=SystemPlace.FIRST)) == expected


def test_system_text_goes_into_the_first_user_message() -> None:
    messages = talk(("system", "S"), ("user", "U"), ("system", "R"), ("user", "V"))
    expected = talk(("user", "S\n\nR\n\nU"), ("user", "V"))
    assert normalise(messages, replace(EASY, system=SystemPlace.NOWHERE)) == expected


def test_an_empty_system_message_goes_without_a_trace() -> None:
    messages = talk(("system", " "), ("user", "U"))
    assert normalise(messages, replace(EASY, system=SystemPlace.NOWHERE)) == talk(("user", "U"))
    assert normalise(messages, replace(EASY, system=SystemPlace.FIRST)) == talk(("system", ""), ("user", "U"))


def test_a_lone_system_message_becomes_the_question() -> None:
    assert normalise(talk(("system", "S")), STRICT) == talk(("user", "S"))
    assert normalise(talk(("system", "S")), EASY) == talk(("system", "S"))


def test_an_answer_that_stands_first_gets_an_empty_question() -> None:
    messages = talk(("system", "S"), ("assistant", "A"), ("user", "U"))
    traits = replace(EASY, assistant_first=False)
    expected = talk(("system", "S"), ("user", ""), ("assistant", "A"), ("user", "U"))
    assert normalise(messages, traits) == expected


def test_no_messages() -> None:
    assert normalise((), STRICT) == ()


flags = st.booleans()
any_traits = st.builds(TemplateTraits, st.sampled_from(SystemPlace), *[flags] * 7)
any_messages = st.lists(
    st.builds(
        Message, st.sampled_from(["system", "user", "assistant", "tool"]), st.sampled_from(["", "a", "b c"])
    ),
    max_size=8,
)


@given(any_messages, any_traits)
def test_the_result_has_what_the_traits_ask_for(messages: list[Message], traits: TemplateTraits) -> None:
    result = normalise(messages, traits)
    roles = [message.role for message in result]
    assert normalise(result, traits) == result
    if not traits.tool_role:
        assert "tool" not in roles
    if traits.system is SystemPlace.NOWHERE and not (traits.system_alone and set(roles) == {"system"}):
        assert "system" not in roles
    if traits.system is SystemPlace.FIRST:
        assert "system" not in roles[1:]
    if not traits.repeated_roles:
        assert not any(a == b and a in ("user", "assistant") for a, b in pairwise(roles))
    if not traits.assistant_first:
        assert [role for role in roles if role != "system"][:1] != ["assistant"]
    if not traits.assistant_last:
        assert roles[-1:] != ["assistant"]
    said = [w for m in messages for w in m.content.split()]
    kept = [w for m in result for w in m.content.split() if w != CONTINUE]
    assert sorted(said) == sorted(kept)


tool_traits = st.builds(
    TemplateTraits,
    system=st.sampled_from(SystemPlace),
    repeated_roles=flags,
    assistant_first=flags,
    assistant_last=flags,
    empty_assistant=flags,
    tool_role=flags,
    tools=st.sampled_from(["tools", None]),
    calls=st.sampled_from(CallForm),
    parallel_calls=flags,
    open_calls=flags,
    user_after_results=flags,
    call_text=st.sampled_from([CallText.BESIDE, CallText.BEFORE]),
    thinking_beside_text=flags,
).filter(
    lambda traits: (
        traits.calls is CallForm.NOWHERE
        or (traits.tools is not None and (traits.tool_role or traits.open_calls))
    )  # else the probe says so
)
calling = st.builds(
    Message,
    st.just("assistant"),
    st.sampled_from(["", "a"]),
    thinking=st.sampled_from(["", "t"]),
    tool_calls=st.lists(st.sampled_from("xyz"), min_size=1, max_size=3).map(
        lambda ids: tuple(ToolCall(i, f"f{i}", "{}") for i in ids)
    ),
)
results = st.builds(Message, st.just("tool"), st.just("r"), tool_call_id=st.sampled_from("xyzw"))
tool_talk = st.lists(
    st.one_of(calling, results, results, any_messages.map(lambda m: (m or AWKWARD)[0])), max_size=8
)


def count_calls(messages: Sequence[Message]) -> int:
    return sum(len(message.tool_calls) for message in messages)


@given(tool_talk, tool_traits)
def test_calls_and_results_are_as_the_traits_ask_for(messages: list[Message], traits: TemplateTraits) -> None:
    result = normalise(messages, traits)
    if traits.open_calls and (traits.calls is not CallForm.NOWHERE or not traits.tool_role):
        # Else calls became text, and their results stand alone or those beside them have other numbers.
        assert normalise(result, traits) == result
    open_ids: set[str | None] = set()
    assert (
        not traits.open_calls
        or traits.calls is CallForm.NOWHERE
        or count_calls(result) == count_calls(messages)
    )
    for message in result:
        if message.role == "tool":
            assert traits.tool_role
            if traits.calls is not CallForm.NOWHERE:
                open_ids.remove(message.tool_call_id)  # its call's message is right before, but for results
            continue
        open_ids = {call.id for call in message.tool_calls}
        assert traits.calls is not CallForm.NOWHERE or not message.tool_calls
        assert traits.parallel_calls or len(message.tool_calls) <= 1
        assert traits.call_text is CallText.BESIDE or not (message.tool_calls and message.content.strip())
    pairs = [(first.role, second.role) for first, second in pairwise(result)]
    assert traits.user_after_results or ("tool", "user") not in pairs
    written = sum((message.content + message.thinking).count('"name": "f') for message in result)
    assert count_calls(messages) == count_calls(result) + written
