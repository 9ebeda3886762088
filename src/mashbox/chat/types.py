"""The neutral vocabulary between the wire protocols and the engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Literal

from mashbox.engine.types import FinishReason, Sampling, Usage

Role = Literal["system", "user", "assistant", "tool"]


@dataclass(frozen=True, slots=True)
class Tool:
    """A function the model may call. `parameters` is the JSON schema of its arguments, an object."""

    name: str
    description: str = ""
    parameters: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call the model made earlier, as the client sends it back. `arguments` is JSON text."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """Whether the model may, must not or must call a tool. `name`, only with "required": which one."""

    mode: Literal["auto", "none", "required"] = "auto"
    name: str | None = None


@dataclass(frozen=True, slots=True)
class ThinkingWish:
    """`on` None leaves it to the template; `budget` is the most tokens of thinking."""

    on: bool | None = None
    budget: int | None = None


@dataclass(frozen=True, slots=True)
class Message:
    """One turn's message, text only. `developer` has become `system` at the edge.

    `thinking` and `tool_calls` are an assistant's; `tool_call_id` says which call a tool message answers.
    """

    role: Role
    content: str
    thinking: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None


@dataclass(frozen=True, slots=True)
class GenerateOptions:
    """How to generate, whatever the prompt. `max_tokens` None: what the context leaves.

    `sampling.seed` is always set: the edge draws one when the client gave none.
    """

    sampling: Sampling
    stop: tuple[str, ...] = ()
    max_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A conversation to answer, as every chat protocol hands it over."""

    messages: tuple[Message, ...]
    options: GenerateOptions
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = ToolChoice()
    thinking: ThinkingWish = ThinkingWish()
    template_kwargs: dict[str, Any] = field(default_factory=dict)
    """Extra variables for the model's template."""


@dataclass(frozen=True, slots=True)
class PromptRequest:
    """A plain prompt to continue; its special tokens are parsed (fill-in-the-middle needs them)."""

    prompt: str
    options: GenerateOptions


# --- the events of one answer: Begun, then Thinking, Text and Call in any order, then Done ---


@dataclass(frozen=True, slots=True)
class Begun:
    """The request has a slot: its prompt is being read. The first event, and once only."""

    prompt_tokens: int
    cached_tokens: int


@dataclass(frozen=True, slots=True)
class Thinking:
    """New text of the model's thinking."""

    text: str


@dataclass(frozen=True, slots=True)
class Text:
    """New answer text."""

    text: str


@dataclass(frozen=True, slots=True)
class Call:
    """A whole tool call. `arguments` is the JSON text of an object, as the model wrote it where it can be."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Done:
    """The answer is complete. The last event of every answer that does not raise."""

    reason: FinishReason
    usage: Usage
    stop: str | None = None
    calls: int = 0
    """How many tool calls it made."""


ChatEvent = Begun | Thinking | Text | Call | Done
Block = Thinking | Text | Call
"""A part of a whole answer: neighbouring events of one kind are one block, each call its own."""


@dataclass(frozen=True, slots=True)
class WholeAnswer:
    """All events of one answer, folded: see `join_blocks`."""

    blocks: tuple[Block, ...]
    done: Done

    @property
    def text(self) -> str:
        """The answer's text without thinking and calls."""
        return "".join(block.text for block in self.blocks if isinstance(block, Text))

    @property
    def thinking(self) -> str:
        """All thinking."""
        return "".join(block.text for block in self.blocks if isinstance(block, Thinking))

    @property
    def calls(self) -> tuple[Call, ...]:
        """The tool calls, in order."""
        return tuple(block for block in self.blocks if isinstance(block, Call))


def join_blocks(parts: Sequence[Block]) -> tuple[Block, ...]:
    """Neighbours of one kind become one block, empty ones none; each call stays its own."""
    blocks: list[Block] = []
    filled = (part for part in parts if isinstance(part, Call) or part.text)
    for kind, run in groupby(filled, key=type):
        if kind is Call:
            blocks.extend(run)
        else:
            text = "".join(part.text for part in run if not isinstance(part, Call))
            blocks.append(Text(text) if kind is Text else Thinking(text))
    return tuple(blocks)
