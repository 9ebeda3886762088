"""The neutral vocabulary between the wire protocols and the engine."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from mashbox.engine.types import FinishReason, Sampling, Usage

Role = Literal["system", "user", "assistant", "tool"]


@dataclass(frozen=True, slots=True)
class Message:
    """One turn's message, text only. `developer` has become `system` at the edge."""

    role: Role
    content: str


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
    template_kwargs: dict[str, Any] = field(default_factory=dict)
    """Extra variables for the model's template, such as enable_thinking."""


@dataclass(frozen=True, slots=True)
class PromptRequest:
    """A plain prompt to continue; its special tokens are parsed (fill-in-the-middle needs them)."""

    prompt: str
    options: GenerateOptions


@dataclass(frozen=True, slots=True)
class Text:
    """New answer text."""

    text: str


@dataclass(frozen=True, slots=True)
class Done:
    """The answer is complete. The last event of every answer that does not raise."""

    reason: FinishReason
    usage: Usage
    stop: str | None = None


ChatEvent = Text | Done


@dataclass(frozen=True, slots=True)
class WholeAnswer:
    """All events of one answer, folded."""

    text: str
    done: Done
