"""From a chat request to everything the engine needs, and the parser of its answer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from mashbox.chat.branches import find_branches, mark_places
from mashbox.chat.formats.choose import choose_format
from mashbox.chat.formats.format import ToolFormat
from mashbox.chat.formats.plain import Plain
from mashbox.chat.stream_parser import AnswerParser
from mashbox.chat.template import ChatTemplate
from mashbox.chat.thinking import Marks, ends_inside
from mashbox.chat.types import ChatRequest, ThinkingWish, Tool
from mashbox.engine.types import Constraint, Reasoning, Segment
from mashbox.errors import InvalidRequestError


@dataclass(frozen=True, slots=True)
class ChatFormat:
    """How one model chats. `stop` are strings that end its turn where no token does."""

    template: ChatTemplate
    tools: ToolFormat
    stop: tuple[str, ...] = ()
    branching: bool = False
    """Prompts tell where others may part from them: the model's state cannot be cut back."""

    @classmethod
    def of(
        cls,
        template: ChatTemplate,
        stop: tuple[str, ...] = (),
        tool_format: str | None = None,
        branching: bool = False,
    ) -> ChatFormat:
        """With the tool format called `tool_format`, else the one that fits the template.

        The plain format goes with tools told in words, so both are used where the template shows no
        tools, and where it shows them in a way that no format reads. Raises ConfigError for an unknown
        name.
        """
        chosen = choose_format(template.source, tool_format)
        if tool_format is None and template.traits.tools is None and not chosen.always:
            chosen = choose_format(None, None)
        if isinstance(chosen, Plain):
            template = template.with_tools_in_words()
        return cls(template, chosen, stop, branching)


@dataclass(frozen=True, slots=True)
class FormatSource:
    """What a ChatFormat is made of: the template's text, and what the model and the user say about it."""

    template: str
    bos: str = ""
    eos: str = ""
    control_tokens: tuple[str, ...] = ()
    stop: tuple[str, ...] = ()
    tool_format: str | None = None
    branching: bool = False

    def build(self) -> ChatFormat:
        """Compile and probe the template. Raises ConfigError when it is no use."""
        template = ChatTemplate(self.template, bos=self.bos, eos=self.eos, control_tokens=self.control_tokens)
        return ChatFormat.of(template, self.stop, self.tool_format, self.branching)


@dataclass(frozen=True, slots=True)
class Prompt:
    """One request, ready for the engine; the fields but `segments` are those of `Submit`."""

    segments: tuple[Segment, ...]
    reasoning: Reasoning | None = None
    constraint: Constraint | None = None
    visible: tuple[str, ...] = ()
    branches: tuple[int, ...] = ()


def answer_parser(tools: ToolFormat, request: ChatRequest) -> AnswerParser:
    """What reads the answer to this request, and no other."""
    offered = offered_tools(request)
    reader = tools.reader(offered) if offered or tools.always else None
    return AnswerParser(reader, keep_thinking=request.thinking.on is not False)


def build_prompt(chat: ChatFormat, request: ChatRequest) -> Prompt:
    """Render a request. Raises InvalidRequestError when the template refuses it."""
    tools = offered_tools(request)
    wish = request.thinking
    constraint = chat.tools.constraint(tools, request.tool_choice) if _must_call(request, tools) else None
    segments = render(chat, request)
    reading = bool(tools) or chat.tools.always
    return Prompt(
        segments,
        _reasoning(chat.template.marks, segments, wish, chat.tools.openers if tools else ()),
        constraint,
        chat.tools.visible if reading else (),
        _branches(chat, request, segments) if chat.branching else (),
    )


def render(chat: ChatFormat, request: ChatRequest) -> tuple[Segment, ...]:
    """The prompt's segments. Raises InvalidRequestError when the template refuses the request."""
    tools = offered_tools(request)
    variables = thinking_variables(request.thinking) | request.template_kwargs
    segments = chat.template.render(request.messages, tools, **variables)
    marks = chat.template.marks
    if marks is None:
        return segments
    inside = _is_inside(segments, marks)
    if inside and request.thinking.on is False:
        return _with_own_text(segments, marks.closing)
    if not inside and request.thinking.on and marks.known and _must_call(request, tools):
        return _with_own_text(segments, marks.opening)  # else the constraint leaves no room to think
    return segments


def _branches(chat: ChatFormat, request: ChatRequest, segments: tuple[Segment, ...]) -> tuple[int, ...]:
    """Costs a second rendering."""
    prompt = _text(segments)
    conversation = mark_places(request.messages, prompt)
    try:
        marked = render(chat, replace(request, messages=conversation.messages))
    except InvalidRequestError:  # the template does not like the marks
        return ()
    return find_branches(prompt, _text(marked), conversation)


def _text(segments: tuple[Segment, ...]) -> str:
    return "".join(segment.text for segment in segments)


def offered_tools(request: ChatRequest) -> tuple[Tool, ...]:
    """The tools the model may call."""
    return () if request.tool_choice.mode == "none" else request.tools


def thinking_variables(wish: ThinkingWish) -> dict[str, Any]:
    """The variables by which templates switch thinking: most read the first, some one of the others."""
    variables: dict[str, Any] = {}
    if wish.on is not None:
        mode = "enabled" if wish.on else "disabled"
        variables |= {"enable_thinking": wish.on, "thinking": wish.on, "thinking_mode": mode}
    if wish.on is False:
        return variables | {"thinking_budget": 0}
    return variables if wish.budget is None else variables | {"thinking_budget": wish.budget}


def _must_call(request: ChatRequest, tools: tuple[Tool, ...]) -> bool:
    return request.tool_choice.mode == "required" and bool(tools)


def _reasoning(
    marks: Marks | None, segments: tuple[Segment, ...], wish: ThinkingWish, openers: tuple[str, ...]
) -> Reasoning | None:
    """Unwanted thinking is a spent budget: the engine ends at once what nobody is to read."""
    if marks is None:
        return None
    return Reasoning(
        marks.opener,
        marks.closer,
        inside=_is_inside(segments, marks),
        budget=0 if wish.on is False else wish.budget,
        closing=marks.closing,
        anywhere=not marks.words,
        calls=openers,
    )


def _is_inside(segments: tuple[Segment, ...], marks: Marks) -> bool:
    """Only the template's own text opens a block."""
    return bool(segments) and segments[-1].parse_special and ends_inside(segments[-1].text, marks)


def _with_own_text(segments: tuple[Segment, ...], text: str) -> tuple[Segment, ...]:
    if not segments or not segments[-1].parse_special:
        return (*segments, Segment(text, parse_special=True))
    return (*segments[:-1], Segment(segments[-1].text + text, parse_special=True))
