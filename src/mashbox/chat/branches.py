"""Where the prompts of other conversations may part from this one's: hints for the engine's snapshots.

The conversation is rendered once more with a mark in a few of its messages, and that is read against the
real prompt. A template that reacts to the marks gives fewer or earlier places, never another prompt.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from mashbox.chat.types import Message

LATEST_TURNS = 3
"""How many of the last turns' starts are places."""
NEAR = 256
"""Characters, about one step of the engine's grid: a place that close before another is not worth it."""

_MARKS = range(0xF8FF, 0xE000, -1)  # the private-use characters, from the far end


@dataclass(frozen=True, slots=True)
class MarkedConversation:
    """A conversation with a character of its own at every place that is looked for."""

    messages: tuple[Message, ...]
    starts: str
    """The marks at the start of a message's text."""
    end: str | None
    """The mark at the end of the text before the last user message."""


def mark_places(messages: Sequence[Message], prompt: str) -> MarkedConversation:
    """Mark the start of the first message, of the last turns, of the last user message and of the last one.

    Turns begin where an assistant has spoken before. Some templates put more than the message in front of
    the last user message, and move it on from turn to turn; so the end of what stands before is marked, too.
    System messages and those without text are left alone. No mark occurs in `prompt`, the real one.
    """
    marks = (chr(code) for code in _MARKS if chr(code) not in prompt)
    marked = list(messages)
    places = _places(messages)
    starts = "".join(islice(marks, len(places)))
    for place, mark in zip(places, starts, strict=False):
        marked[place] = _with_mark_before(marked[place], mark)
    end = None
    before = _before_last_user(messages)
    if before is not None and (end := next(marks, None)) is not None:
        marked[before] = _with_mark_behind(marked[before], end)
    return MarkedConversation(tuple(marked), starts, end)


def find_branches(prompt: str, marked_prompt: str, conversation: MarkedConversation) -> tuple[int, ...]:
    """The marks' places in the real prompt, in characters, ascending; white space before them is left out.

    Where the prompts differ in more than marks, the first such place is the last one that is told.
    """
    marks = conversation.starts + (conversation.end or "")
    starts: set[int] = set()
    ends: set[int] = set()
    for place, mark in _read(prompt, marked_prompt, marks):
        (ends if mark == conversation.end else starts).add(len(prompt[:place].rstrip()))
    lonely = {end for end in ends if not any(end <= start <= end + NEAR for start in starts)}
    return tuple(sorted((starts | lonely) - {0}))


def _places(messages: Sequence[Message]) -> list[int]:
    spoken = [index for index, message in enumerate(messages) if _is_spoken(message)]
    asked = [index for index in spoken if messages[index].role != "assistant"]
    users = [index for index in asked if messages[index].role == "user"]
    turns = list(_turns(messages))
    return sorted({*spoken[:1], *turns[-LATEST_TURNS:], *users[-1:], *asked[-1:]})


def _is_spoken(message: Message) -> bool:
    return message.role != "system" and bool(message.content.strip())


def _turns(messages: Sequence[Message]) -> Iterator[int]:
    """The first message with text after each answer: results of one answer's calls are one turn."""
    fresh = True
    for index, message in enumerate(messages):
        if message.role == "assistant":
            fresh = True
        elif fresh and _is_spoken(message):
            fresh = False
            yield index


def _before_last_user(messages: Sequence[Message]) -> int | None:
    """The message right before the last user message, if it has text."""
    others = [index for index, message in enumerate(messages) if message.role != "system"]
    users = [place for place, index in enumerate(others) if messages[index].role == "user"]
    if not users or users[-1] == 0:
        return None
    before = others[users[-1] - 1]
    return before if _is_spoken(messages[before]) else None


def _with_mark_before(message: Message, mark: str) -> Message:
    """White space stays outside, so that a template can trim it as ever."""
    bare = message.content.lstrip()
    white = message.content[: len(message.content) - len(bare)]
    return replace(message, content=white + mark + bare)


def _with_mark_behind(message: Message, mark: str) -> Message:
    bare = message.content.rstrip()
    return replace(message, content=bare + mark + message.content[len(bare) :])


def _read(prompt: str, marked_prompt: str, marks: str) -> Iterator[tuple[int, str]]:
    """(place, mark) of each mark where it first stands, then (place, "") where more than marks differs."""
    if not marks:
        return
    pieces = re.split(f"([{marks}])", marked_prompt)
    seen: set[str] = set()
    place = 0
    for piece, mark in zip(pieces[::2], [*pieces[1::2], ""], strict=True):
        if not prompt.startswith(piece, place):
            yield place + _same(piece, prompt[place : place + len(piece)]), ""
            return
        place += len(piece)
        if mark and mark not in seen:
            seen.add(mark)
            yield place, mark


def _same(first: str, second: str) -> int:
    """How many characters are the same from the start."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((index for index, (one, other) in pairs if one != other), min(len(first), len(second)))
