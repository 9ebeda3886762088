"""What a chat template takes and shows: found out by `probe.py`, heeded by `normalise.py`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class SystemPlace(Enum):
    """Where a template shows system messages."""

    ANYWHERE = "anywhere"  # also several, also between or after other messages
    FIRST = "first"  # one, at the start
    NOWHERE = "nowhere"


class CallForm(Enum):
    """How a template takes the arguments of calls."""

    OBJECT = "object"
    TEXT = "text"  # JSON text
    NOWHERE = "nowhere"  # it shows no calls


class EmptyContent(Enum):
    """What stands for the content of a message that is nothing but calls."""

    TEXT = "text"  # ""
    NONE = "none"
    ABSENT = "absent"  # no such key


class CallText(Enum):
    """Where a template shows text that comes with calls."""

    BESIDE = "beside"  # in the same message
    BEFORE = "before"  # only in a message of its own
    NOWHERE = "nowhere"


class ThinkingPlace(Enum):
    """Where a template reads an earlier answer's thinking; the first three are names of message keys."""

    REASONING_CONTENT = "reasoning_content"
    REASONING = "reasoning"
    THINKING = "thinking"
    PART = "part"  # a part of the content, of type "thinking"
    CONTENT = "content"  # before the text, in the model's marks; the template cuts it out itself


@dataclass(frozen=True, slots=True)
class TemplateTraits:
    """What a template takes. The defaults are those of an easy-going one."""

    system: SystemPlace = SystemPlace.ANYWHERE
    system_alone: bool = True
    """A conversation of nothing but a system message."""
    repeated_roles: bool = True
    """Several user or assistant messages in a row."""
    assistant_first: bool = True
    assistant_last: bool = True
    empty_assistant: bool = True
    """An assistant message with empty content."""
    tool_role: bool = True
    content_parts: bool = False
    """Content must be a list of parts, not a string. Does not change `normalise`."""
    tools: str | None = "tools"
    """The variable in which it reads the declared tools; None: it shows none."""
    tools_listed: bool = False
    """That variable must be a list even if there are none."""
    any_schema: bool = True
    """Schemas with several types, with null, with alternatives or without a type."""
    calls: CallForm = CallForm.OBJECT
    any_arguments: bool = True
    """Arguments that are no JSON object may be given as text."""
    empty_content: EmptyContent = EmptyContent.TEXT
    parallel_calls: bool = True
    """Several calls in one message."""
    open_calls: bool = True
    """A call that no result answers before the next user message."""
    user_after_results: bool = True
    call_text: CallText = CallText.BESIDE
    thinking: ThinkingPlace = ThinkingPlace.REASONING_CONTENT
    thinking_beside_text: bool = True
    """Thinking, text and calls in one message."""
