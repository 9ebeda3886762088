"""Brings tool results to the calls they answer, and gives calls ids that do not depend on the client."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from itertools import count

from mashbox.chat.types import Message


def pair_results(messages: Sequence[Message]) -> list[Message]:
    """The same conversation with each result right after its call's message, in the order of the calls.

    Ids become `call00001`, `call00002`, ... in the order of the calls (one family insists on nine
    letters and digits). A result answers the latest unanswered call of its id; one that answers
    none becomes a user message. A call without a result stays.
    """
    results = _answers(messages)
    numbers = count(1)
    paired: list[Message] = []
    for index, message in enumerate(messages):
        if message.role == "tool":
            if index not in results.taken:
                paired.append(Message("user", message.content))
            continue
        ids = [f"call{next(numbers):05d}" for _ in message.tool_calls]
        calls = tuple(replace(call, id=new) for call, new in zip(message.tool_calls, ids, strict=True))
        paired.append(replace(message, tool_calls=calls))
        for position, new in enumerate(ids):
            if (found := results.of_call.get((index, position))) is not None:
                paired.append(Message("tool", messages[found].content, tool_call_id=new))
    return paired


class _Answers:
    """Which result answers which call, both by where they stand."""

    def __init__(self) -> None:
        self.of_call: dict[tuple[int, int], int] = {}
        self.taken: set[int] = set()


def _answers(messages: Sequence[Message]) -> _Answers:
    answers = _Answers()
    waiting: dict[str, list[deque[tuple[int, int]]]] = {}
    for index, message in enumerate(messages):
        if message.role == "tool":
            stack = waiting.get(message.tool_call_id or "")
            if not stack:
                continue
            answers.of_call[stack[-1].popleft()] = index
            answers.taken.add(index)
            if not stack[-1]:
                stack.pop()
        for position, call in enumerate(message.tool_calls):
            stack = waiting.setdefault(call.id, [])
            if not stack or stack[-1][0][0] != index:
                stack.append(deque())
            stack[-1].append((index, position))
    return answers
