"""The chat template: rendering, errors, and that request text never becomes a control token."""

import json
import re
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import jinja2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2.sandbox import ImmutableSandboxedEnvironment

from mashbox.chat.message_dict import message_dicts
from mashbox.chat.normalise import normalise
from mashbox.chat.template import ChatTemplate
from mashbox.chat.types import Message
from mashbox.engine.types import Segment
from mashbox.errors import ConfigError, InvalidRequestError

TEMPLATES = Path(__file__).parent / "templates"
BOS, EOS = "<s>", "</s>"
CONTROL = (
    *(BOS, EOS, "[INST]", "[/INST]", "<|im_start|>", "<|im_end|>", "<|end|>", "<|end|>>", "<|user|>"),
    *("<|assistant|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "</think>", "<think>"),
    *("<start_of_turn>", "<end_of_turn>", "<▁x▁y▁>", "<|", "▁<PRE>"),
)


def source_of(name: str) -> str:
    return (TEMPLATES / f"{name}.jinja").read_text()


def build(source: str, control: tuple[str, ...] = CONTROL, **kwargs: Any) -> ChatTemplate:
    return ChatTemplate(source, bos=BOS, eos=EOS, control_tokens=control, **kwargs)


FAMILIES = sorted(path.stem for path in TEMPLATES.glob("*.jinja"))
BUILT = {name: build(source_of(name)) for name in FAMILIES}


def _refuse(message: str) -> None:
    raise jinja2.TemplateError(message)


def _plain_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def plain_rendering(name: str, messages: tuple[Message, ...]) -> str:
    """What stock Jinja makes of the same messages, with nothing swapped."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.globals["raise_exception"] = _refuse
    environment.filters["tojson"] = _plain_json
    traits = BUILT[name].traits
    dicts = message_dicts(normalise(messages, traits), traits)
    template = environment.from_string(source_of(name))
    return template.render(messages=dicts, add_generation_prompt=True, bos_token=BOS, eos_token=EOS)


def joined(segments: tuple[Segment, ...]) -> str:
    return "".join(segment.text for segment in segments)


def special_text(segments: tuple[Segment, ...]) -> str:
    """The text that may become control tokens; plain segments leave a gap no literal spans."""
    return "\0".join(segment.text for segment in segments if segment.parse_special)


def control_in(segments: tuple[Segment, ...], literals: tuple[str, ...] = CONTROL) -> list[str]:
    pattern = "|".join(map(re.escape, sorted(literals, key=len, reverse=True)))
    return re.findall(pattern, special_text(segments))


fragments = st.sampled_from(
    [
        *CONTROL,
        *("<", ">", "|", "<|im_", "end|>", "im_end", "/", "[", "]", "<|e", "nd|>", "▁", "<|im_end"),
        *(" ", "\n", "\n\n", "a", "Hello", "é", '"', "\\", "{{ 1 }}", "{% if %}", "%s", "{}"),
        *("\ue000", "\ue001", "\ue005", "\uf8ff", "\U000f0000", "\U0010fffd", "<tool_response>"),
    ]
)
contents = st.lists(fragments, max_size=12).map("".join)
roles = st.sampled_from(["system", "user", "assistant", "tool"])
conversations = st.lists(st.builds(Message, roles, contents), min_size=1, max_size=6).map(tuple)


@pytest.mark.parametrize("name", FAMILIES)
def test_any_conversation_renders_as_stock_jinja_does(name: str) -> None:
    @given(conversations)
    def check(messages: tuple[Message, ...]) -> None:
        segments = BUILT[name].render(messages)
        assert joined(segments) == plain_rendering(name, messages)
        assert all(segment.text for segment in segments)
        kinds = [segment.parse_special for segment in segments]
        assert all(a != b for a, b in pairwise(kinds))
        assert segments == BUILT[name].render(messages)

    check()


def neutral(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """The same conversation without a single character that control literals are made of."""
    return tuple(Message(m.role, "x" if m.content.strip() else "") for m in messages)


@pytest.mark.parametrize("name", [name for name in FAMILIES if name not in ("juggler", "thinking")])
def test_control_tokens_are_exactly_the_templates_own(name: str) -> None:
    """These templates write the same control tokens whatever the text, so text must not change them."""

    @given(conversations)
    def check(messages: tuple[Message, ...]) -> None:
        expected = control_in(BUILT[name].render(neutral(messages)))
        assert control_in(BUILT[name].render(messages)) == expected

    check()


@pytest.mark.parametrize("name", ["juggler", "thinking"])
def test_no_control_token_holds_a_character_of_the_text(name: str) -> None:
    """Where the text decides what is written: words typed by the user carry a letter of their own."""
    control = tuple(literal.replace("e", "ə") for literal in CONTROL if "e" in literal)
    template = build(source_of(name), CONTROL + control)
    typed = st.sampled_from(
        [*control, "<", "|", ">", "<|", "|>", "<|ə", "nd|>", "<|əndnd|>", "</think>", "a"]
    )

    @given(st.lists(typed, max_size=8).map("".join))
    def check(text: str) -> None:
        segments = template.render((Message("user", "q"), Message("assistant", text), Message("user", text)))
        assert control_in(segments, control) == []

    check()


def render_one(source: str, text: str, control: tuple[str, ...] = CONTROL) -> tuple[Segment, ...]:
    return build(source, control).render((Message("user", text),), add_generation_prompt=False)


ECHO = "{% for m in messages %}{{ m.content }}{% endfor %}"


def test_plain_text_is_one_special_segment() -> None:
    segments = BUILT["chatml"].render((Message("user", "a < b | c > d [INST"),))
    expected = "<|im_start|>user\na < b | c > d [INST<|im_end|>\n<|im_start|>assistant\n"
    assert segments == (Segment(expected, True),)


def test_a_typed_control_literal_is_plain() -> None:
    segments = render_one("<s>{{ messages[0].content }}</s>", "a<|im_end|>b")
    expected = [("<s>a", True), ("<|im_end|>", False), ("b</s>", True)]
    assert segments == tuple(Segment(*pair) for pair in expected)


def test_the_longest_of_overlapping_literals_is_plain() -> None:
    segments = render_one(ECHO, "a<|end|>>b", ("<|end|>", "<|end|>>", "<|"))
    assert segments == (Segment("a", True), Segment("<|end|>>", False), Segment("b", True))


def test_a_literal_around_a_literal_stays_broken() -> None:
    segments = render_one(ECHO, "<|im_<|im_end|>end|>", ("<|im_end|>",))
    assert segments == (Segment("<|im_", True), Segment("<|im_end|>", False), Segment("end|>", True))


@pytest.mark.parametrize(
    "source",
    [
        "{% for m in messages %}{% for half in m.content.split('~') %}{{ half }}{% endfor %}{% endfor %}",
        "{% for m in messages %}{{ m.content | replace('~', '') }}{% endfor %}",
        "{% for m in messages %}{{ m.content[:5] }}{{ m.content[6:] }}{% endfor %}",
    ],
)
def test_a_literal_glued_together_by_the_template_is_plain(source: str) -> None:
    assert render_one(source, "<|im_~end|>") == (Segment("<|im_end|>", False),)


@pytest.mark.parametrize(
    ("source", "text"), [("<{}", "|im_end|>"), ("{}>", "<|im_end|"), ("<|im{}", "_end|>")]
)
def test_a_literal_begun_by_the_template_and_ended_by_the_text_is_broken(source: str, text: str) -> None:
    segments = render_one(source.format(ECHO), text, ("<|im_end|>",))
    assert joined(segments) == "<|im_end|>"
    assert control_in(segments, ("<|im_end|>",)) == []


def test_a_literal_that_overlaps_one_of_the_template() -> None:
    segments = render_one("<a|" + ECHO, "b>", ("<a|", "|b>"))
    assert segments == (Segment("<a|", True), Segment("b>", False))
    segments = render_one("<a" + ECHO, ">", ("<a", "a>"))
    assert segments == (Segment("<a", True), Segment(">", False))


@pytest.mark.parametrize("test", ["text == '<s>'", "'<s>' == text", "text in ['<s>']", "text is eq '<s>'"])
def test_comparisons_see_the_text_as_it_was_sent(test: str) -> None:
    source = "{% set text = messages[0].content %}{{ " + test + " }}"
    assert joined(render_one(source, "<s>")) == "True"
    assert joined(render_one(source, "<s")) == "False"


def test_doubled_and_dropped_text() -> None:
    source = "{% set c = messages[0].content %}{{ c }}{{ c }}<s>{% if false %}{{ c }}{% endif %}"
    segments = render_one(source, "<s>")
    assert segments == (Segment("<s><s>", False), Segment("<s>", True))


def test_private_use_characters_of_the_text_survive() -> None:
    every = "".join(map(chr, range(0xE000, 0xE100)))
    segments = render_one("<s>" + ECHO, every + "<s>")
    assert segments == (Segment("<s>" + every, True), Segment("<s>", False))


def test_private_use_characters_of_the_template_survive() -> None:
    segments = render_one("\ue000{{ '\\ue001' }}" + ECHO, "<s>")
    assert segments == (Segment("\ue000\ue001", True), Segment("<s>", False))


def test_private_use_characters_of_template_and_text_survive_together() -> None:
    of_template = "".join(map(chr, range(0xE000, 0xE080)))
    of_text = "".join(map(chr, range(0xE080, 0xE100)))
    segments = render_one(of_template + ECHO, of_text + "<s>")
    assert segments == (Segment(of_template + of_text, True), Segment("<s>", False))


def test_a_list_in_pythons_notation_shows_the_text_as_it_was_sent() -> None:
    template = build("{{ docs }}{{ docs ~ '' }}{{ docs | string }}")
    segments = template.render((), docs=["<s>", "é|"])
    assert joined(segments) == "['<s>', 'é|']" * 3
    assert control_in(segments) == []


@pytest.mark.parametrize(
    "typed", ["\\ue000", "\\ue001 \\ue002 \\uf8ff \\U000f0000", "\\\\ue000", "\\ufffd \\ue00"]
)
def test_escapes_that_are_typed_survive(typed: str) -> None:
    assert joined(render_one("<s>" + ECHO, typed + "<s>")) == f"<s>{typed}<s>"


def test_text_that_uses_up_all_private_characters_is_refused() -> None:
    ranges = (range(0xE000, 0xF900), range(0xF0000, 0xFFFFE), range(0x100000, 0x10FFFE))
    with pytest.raises(InvalidRequestError, match="private-use"):
        render_one(ECHO, "".join(chr(code) for codes in ranges for code in codes))


def test_a_literal_of_letters_only() -> None:
    segments = render_one("PAD" + ECHO, "a PAD b", ("PAD",))
    assert segments == (Segment("PADa ", True), Segment("PAD", False), Segment(" b", True))


def test_literals_with_white_space_are_trimmed_as_they_are() -> None:
    segments = render_one("{{ messages[0].content | trim }}", " <a> x <a> ", (" <a> ",))
    assert joined(segments) == "<a> x <a>"
    assert segments == (Segment("<a> x <a>", True),)


def test_thinking_is_cut_out_although_its_tags_are_control_tokens() -> None:
    messages = (
        Message("user", "q"),
        Message("assistant", "<think>\nhm\n</think>\n\nyes <think>"),
        Message("user", "r"),
    )
    assert "hm" not in joined(BUILT["thinking"].render(messages))
    assert Segment("<think>", False) in BUILT["thinking"].render(messages)
    kept = BUILT["thinking"].render(messages[:2])
    assert "<think>\nhm\n</think>\n\nyes " in special_text(kept)


def test_template_kwargs_reach_the_template_and_cannot_forge() -> None:
    template = build("{{ mode }}{{ docs[0].text }}{{ docs | tojson }}")
    segments = template.render((), mode="on", docs=[{"text": "<s>", "<|end|>": 1}])
    assert joined(segments) == 'on<s>[{"text": "<s>", "<|end|>": 1}]'
    assert control_in(segments) == []
    off = BUILT["thinking"].render((Message("user", "q"),), enable_thinking=False)
    assert joined(off).endswith("<think>\n\n</think>\n\n")


@pytest.mark.parametrize("name", ["messages", "bos_token", "raise_exception"])
def test_template_kwargs_cannot_replace_the_templates_own_variables(name: str) -> None:
    kwargs: dict[str, Any] = {name: "x"}
    with pytest.raises(InvalidRequestError) as caught:
        BUILT["chatml"].render((Message("user", "q"),), **kwargs)
    assert caught.value.param == "chat_template_kwargs"


def test_generation_prompt_can_be_left_out() -> None:
    segments = BUILT["chatml"].render((Message("user", "q"),), add_generation_prompt=False)
    assert joined(segments) == "<|im_start|>user\nq<|im_end|>\n"


def test_an_empty_rendering_has_no_segments() -> None:
    assert render_one("", "q") == ()


def test_a_token_spelt_around_a_word_is_the_templates_own() -> None:
    segments = render_one("<|{{ messages[0].content }}|>", "im_end", ("<|im_end|>",))
    assert segments == (Segment("<|im_end|>", True),)


def test_parts_template_gets_parts() -> None:
    assert joined(BUILT["parts"].render((Message("user", "q"),))) == "<|user|>q<|end|>\n<|assistant|>"


def test_dates_come_from_the_clock() -> None:
    template = build("{{ strftime_now('%d %B %Y') }}", clock=lambda: datetime(2031, 2, 3))
    assert joined(template.render(())) == "03 February 2031"


def test_a_template_that_does_not_compile_names_the_line() -> None:
    with pytest.raises(ConfigError, match=r"line 2: .*unexpected"):
        build("fine\n{{ messages[ }}")
    with pytest.raises(ConfigError, match="line 3: No filter named 'nope'"):
        build("\n\n{{ messages | nope }}")
    with pytest.raises(ConfigError, match="does not compile"):
        build("{{ " + "(" * 5000 + ")" * 5000 + " }}")


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("{{ raise_exception('no ' + messages[0].content) }}", "refuses this conversation: no <s>"),
        ("{{ messages[0].nothing.more }}", "has no attribute 'nothing'"),
        ("{{ messages[0].content + 1 }}", "fails: can only concatenate str"),
        ("{{ 1 // 0 }}", "fails"),
        ("{{ messages.append(1) }}", "unsafe"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{% include 'x' %}", "fails: no loader"),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "calls itself without end"),
    ],
)
def test_a_template_that_fails_is_the_requests_error(source: str, words: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        render_one(source, "<s>")
    assert words in str(caught.value)
    assert (caught.value.code, caught.value.param) == ("template_error", "messages")


def test_deeply_nested_template_kwargs_are_the_requests_error() -> None:
    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]
    with pytest.raises(InvalidRequestError):
        BUILT["chatml"].render((Message("user", "q"),), deep=deep)
