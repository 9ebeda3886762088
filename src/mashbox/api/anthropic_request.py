"""The bodies of the two Messages routes as neutral requests."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from mashbox.api.anthropic_blocks import Content
from mashbox.api.anthropic_conversation import WireMessage, loaded_tools, neutral_messages
from mashbox.api.anthropic_tools import Choice, neutral_tools
from mashbox.api.wire import MAX_INT, MAX_MESSAGES, MAX_TOOLS, GenerationFields, check_one_answer
from mashbox.chat.types import ChatRequest, GenerateOptions, ThinkingWish
from mashbox.engine.types import Sampling
from mashbox.errors import InvalidRequestError


class ThinkingField(msgspec.Struct):
    """Whether to think, and with "enabled" for how many tokens at most."""

    type: Literal["enabled", "adaptive", "disabled"]
    budget_tokens: Annotated[int, Meta(le=MAX_INT)] | None = None


class OutputConfig(msgspec.Struct):
    """The wanted form of the answer; none can be given. How much effort to make is ignored."""

    format: Any = None


MessagesField = Annotated[list[WireMessage], Meta(min_length=1, max_length=MAX_MESSAGES)]
ToolsField = Annotated[list[dict[str, Any]], Meta(max_length=MAX_TOOLS)]


class MessagesRequest(GenerationFields, kw_only=True):
    """The body of a Messages request."""

    messages: MessagesField
    system: Content = None
    tools: ToolsField | None = None
    tool_choice: Choice | None = None
    thinking: ThinkingField | None = None
    output_config: OutputConfig | None = None


class CountRequest(msgspec.Struct, kw_only=True):
    """The body of a request to count a prompt's tokens: the fields that make the prompt."""

    messages: MessagesField
    system: Content = None
    tools: ToolsField | None = None
    tool_choice: Choice | None = None
    thinking: ThinkingField | None = None


def parse_request(body: MessagesRequest, defaults: Sampling) -> ChatRequest:
    """The neutral request; raises InvalidRequestError for what this server does not do."""
    check_one_answer(body)
    if body.output_config is not None and body.output_config.format is not None:
        raise InvalidRequestError(
            "'output_config.format' is not supported: answers are plain text.", param="output_config.format"
        )
    return _chat_request(body, body.options(defaults))


def parse_count(body: CountRequest) -> ChatRequest:
    """The neutral request with the same prompt; its options mean nothing."""
    return _chat_request(body, GenerateOptions(Sampling()))


def _chat_request(body: MessagesRequest | CountRequest, options: GenerateOptions) -> ChatRequest:
    messages = neutral_messages(body.system, body.messages)
    tools, choice = neutral_tools(body.tools or (), body.tool_choice, loaded_tools(body.messages))
    return ChatRequest(messages, options, tools, choice, thinking_wish(body.thinking))


def thinking_wish(thinking: ThinkingField | None) -> ThinkingWish:
    """Off unless asked for."""
    if thinking is None or thinking.type == "disabled":
        return ThinkingWish(on=False)
    if thinking.type == "adaptive":
        return ThinkingWish(on=True)
    if thinking.budget_tokens is not None and thinking.budget_tokens < 1:
        raise InvalidRequestError(
            "Invalid value for 'thinking.budget_tokens': expected integer >= 1.",
            param="thinking.budget_tokens",
        )
    return ThinkingWish(on=True, budget=thinking.budget_tokens)
