"""Finds out what a template takes, by rendering a few small conversations with it.

The probes render messages in the forms of trial traits, unshaped: a template must neither refuse a
conversation nor drop a text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product

from mashbox.chat.traits import (
    CallForm,
    CallText,
    EmptyContent,
    SystemPlace,
    TemplateTraits,
    ThinkingPlace,
)
from mashbox.chat.types import Message, Tool, ToolCall
from mashbox.errors import InvalidRequestError

Render = Callable[[Sequence[Message], TemplateTraits, Sequence[Tool]], str]
"""Renders messages as they are, in the forms of the traits. Raises InvalidRequestError."""

_SYSTEM = ("sysprobe alpha", "sysprobe beta", "sysprobe gamma")
_USER, _USER2 = Message("user", "userprobe delta"), Message("user", "userprobe epsilon")
_ANSWER, _ANSWER2 = Message("assistant", "replyprobe zeta"), Message("assistant", "replyprobe eta")
_THOUGHT = "thoughtprobe lambda"

_SCHEMA = {"type": "object", "properties": {"argprobe": {"type": "string", "description": "A kappa."}}}
_TOOLS = (Tool("toolprobe_mu", "descriptionprobe nu", _SCHEMA),)
_PROPERTIES = {
    "listed": {"type": ["string", "null"]},
    "either": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None},
    "fixed": {"const": 1},
    "nested": {"type": "array", "items": {"type": ["object", "null"], "properties": {"any": {}}}},
    "bare": {},
}
_ODD_TOOLS = (Tool("toolprobe_mu", "descriptionprobe nu", {"type": "object", "properties": _PROPERTIES}),)
_TOOL_VARIABLES = ("tools", "xml_tools", "custom_tools")

_IDS = ("call00001", "call00002")
_CALLS = tuple(
    ToolCall(call_id, "toolprobe_mu", f'{{"argprobe": "valueprobe {word}"}}')
    for call_id, word in zip(_IDS, ("xi", "omicron"), strict=True)
)
_CALLING = Message("assistant", "", tool_calls=_CALLS[:1])
_RESULT, _RESULT2 = (
    Message("tool", f"resultprobe {word}", tool_call_id=call_id)
    for call_id, word in zip(_IDS, ("pi", "rho"), strict=True)
)
_FOREIGN = re.compile(r"""'(?:text|thinking|argprobe)':|"closed"|\\"argprobe""")
"""A list or an object in Python's notation, or one that was written as JSON twice."""
_WORDS = re.compile(r"(?:value|arg|tool)probe\w*(?: \w+)?")


def find_traits(render: Render) -> tuple[TemplateTraits, TemplateTraits]:
    """What the template behind `render` takes without declared tools, and with some."""
    variable = _tools_variable(render)
    start = TemplateTraits(tools=variable)
    if variable is not None and not any(_shows(render, t, (), (_USER,)) for t in _strings_and_parts(start)):
        start = replace(start, tools_listed=True)
    bare = _Probe(render, start, ()).run()
    if variable is None:
        return bare, bare
    return bare, _Probe(render, TemplateTraits(tools=variable), _TOOLS).run()


def _tools_variable(render: Render) -> str | None:
    """Where a template reads tools; a template may want them and parts of content at once."""
    texts = (_TOOLS[0].name, _TOOLS[0].description, "argprobe")
    for name in _TOOL_VARIABLES:
        trials = _strings_and_parts(TemplateTraits(tools=name))
        if any(_shows(render, traits, _TOOLS, (_USER,), texts) for traits in trials):
            return name
    return None


def _strings_and_parts(traits: TemplateTraits) -> tuple[TemplateTraits, TemplateTraits]:
    return traits, replace(traits, content_parts=True)


def _shows(
    render: Render,
    traits: TemplateTraits,
    tools: Sequence[Tool],
    messages: Sequence[Message],
    more: Sequence[str] = (),
) -> bool:
    """Whether every text and `more` come out, and in a fitting notation."""
    try:
        text = render(messages, traits, tools)
    except InvalidRequestError:
        return False
    calls_alone = any(m.tool_calls and not m.content for m in messages)
    if calls_alone and traits.empty_content is EmptyContent.NONE and "None" in text:
        return False
    if _FOREIGN.search(text):
        return False
    return all(message.content in text for message in messages) and all(word in text for word in more)


class _Probe:
    """Finds the traits one after another; each probe uses what is known by then."""

    def __init__(self, render: Render, start: TemplateTraits, tools: Sequence[Tool]) -> None:
        self._render = render
        self._tools = tools
        self._traits = start

    def run(self) -> TemplateTraits:
        """All traits."""
        self._probe_messages()
        if self._tools:
            texts = (_ODD_TOOLS[0].name, _ODD_TOOLS[0].description)
            self._know(any_schema=_shows(self._render, self._traits, _ODD_TOOLS, (_USER,), texts))
        self._probe_calls()
        self._probe_thinking()
        return self._traits

    def _know(self, **found: object) -> None:
        self._traits = replace(self._traits, **found)  # type: ignore[arg-type]

    def _takes(self, *messages: Message, more: Sequence[str] = ()) -> bool:
        """Whether it shows all texts of these messages, calls too."""
        called = [word for m in messages for call in m.tool_calls for word in _words(call)]
        return _shows(self._render, self._traits, self._tools, messages, (*called, *more))

    def _probe_messages(self) -> None:
        takes = self._takes
        if not takes(_USER):
            self._know(content_parts=True)
            self._know(content_parts=takes(_USER))
        self._know(
            system=self._system_place(),
            system_alone=takes(Message("system", _SYSTEM[0])),
            repeated_roles=takes(_USER, _USER2, _ANSWER) and takes(_USER, _ANSWER, _ANSWER2, _USER2),
            assistant_first=takes(_ANSWER, _USER),
            assistant_last=takes(_USER, _ANSWER),
            empty_assistant=takes(_USER, Message("assistant", ""), _USER2),
        )

    def _system_place(self) -> SystemPlace:
        first, second, third = (Message("system", text) for text in _SYSTEM)
        takes = self._takes
        if takes(first, second, _USER, _ANSWER, third, _USER2) and takes(first, _USER, second):
            return SystemPlace.ANYWHERE
        return SystemPlace.FIRST if takes(first, _USER) else SystemPlace.NOWHERE

    def _probe_calls(self) -> None:
        """A template that shows no tools is told of calls in text, as of tools: see `formats/plain.py`."""
        if self._traits.tools is None or not self._find_call_form():
            self._know(calls=CallForm.NOWHERE, tool_role=self._takes(_USER, _ANSWER, _RESULT))
            return
        takes = self._takes
        self._know(tool_role=takes(_USER, _CALLING, _RESULT))
        self._know(
            any_arguments=takes(_USER, _with_loose_arguments(_CALLING), *self._result()),
            parallel_calls=takes(
                _USER, replace(_CALLING, tool_calls=_CALLS), *self._result(), *self._second()
            ),
            open_calls=takes(_USER, _CALLING, _USER2),
            user_after_results=takes(_USER, _CALLING, *self._result(), _USER2, _ANSWER),
            call_text=self._call_text(),
        )
        system = Message("system", _SYSTEM[0])
        if takes(system, _USER) and not takes(system, _USER, _CALLING, *self._result()):
            self._know(system=SystemPlace.NOWHERE)  # it forgets the system message in the midst of a task
        if not self._traits.tool_role and not self._traits.open_calls:
            self._know(calls=CallForm.NOWHERE)  # results are user messages, and those it refuses

    def _find_call_form(self) -> bool:
        for form, empty in product((CallForm.OBJECT, CallForm.TEXT), EmptyContent):
            self._know(calls=form, empty_content=empty)
            if self._takes(_USER, _CALLING, _RESULT) or self._takes(_USER, _CALLING):
                return True
        self._know(empty_content=EmptyContent.TEXT)
        return False

    def _result(self) -> tuple[Message, ...]:
        return (_RESULT,) if self._traits.tool_role else ()

    def _second(self) -> tuple[Message, ...]:
        return (_RESULT2,) if self._traits.tool_role else ()

    def _call_text(self) -> CallText:
        told = replace(_CALLING, content=_ANSWER.content)
        if self._takes(_USER, told, *self._result()):
            return CallText.BESIDE
        apart = self._takes(_USER, _ANSWER, _CALLING, *self._result(), _ANSWER2, _USER2)
        return CallText.BEFORE if apart else CallText.NOWHERE

    def _probe_thinking(self) -> None:
        """The first place from which thinking is shown, be it only the latest, or only beside calls."""
        before = self._traits
        for place in ThinkingPlace:
            self._know(thinking=place)
            if self._shows_thinking():
                break
        else:
            self._traits = before  # no template minds a key that it does not read
        together = replace(_CALLING, content=_ANSWER.content, thinking=_THOUGHT)
        if self._traits.calls is not CallForm.NOWHERE and self._traits.call_text is CallText.BESIDE:
            self._know(thinking_beside_text=self._takes(_USER, together, *self._result()))

    def _shows_thinking(self) -> bool:
        answer, call = replace(_ANSWER, thinking=_THOUGHT), replace(_CALLING, thinking=_THOUGHT)
        more = (_THOUGHT,)
        shown = self._takes(_USER, answer, more=more) or self._takes(_USER, call, *self._result(), more=more)
        if not shown or self._traits.thinking is not ThinkingPlace.CONTENT:
            return shown
        # A template that shows any content says nothing; one that cuts old thinking out knows of it.
        follow_up = (_USER, answer, _USER2)
        return self._takes(*follow_up) and not self._takes(*follow_up, more=more)


def _words(call: ToolCall) -> list[str]:
    """What of a call must be seen, whatever the notation."""
    return [call.name, *_WORDS.findall(call.arguments)]


def _with_loose_arguments(message: Message) -> Message:
    calls = tuple(replace(call, arguments="valueprobe sigma") for call in message.tool_calls)
    return replace(message, tool_calls=calls)
