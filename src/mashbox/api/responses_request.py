"""A Responses request as a neutral one."""

from __future__ import annotations

from dataclasses import replace

from mashbox.api.responses_body import ReasoningField, ResponsesBody, check_body
from mashbox.api.responses_choice import read_choice
from mashbox.api.responses_input import additional_tools, read_items
from mashbox.api.responses_tools import Toolbox, read_tools
from mashbox.chat.types import ChatRequest, GenerateOptions, Message, ThinkingWish
from mashbox.engine.types import Sampling
from mashbox.errors import InvalidRequestError

NO_THINKING = frozenset({"none", "minimal"})
"""The efforts that ask for an answer without thinking."""


def parse_request(body: ResponsesBody, defaults: Sampling) -> tuple[ChatRequest, Toolbox]:
    """The neutral request, and the tools to name its calls by.

    Raises InvalidRequestError for what cannot be read or is not done here.
    """
    check_body(body)
    items = [] if isinstance(body.input, str) else body.input
    box = read_tools([(body.tools or (), "tools"), *additional_tools(items)])
    tools, choice = read_choice(body.tool_choice, box)
    messages = _messages(body, box)
    return ChatRequest(messages, _options(body, defaults), tools, choice, _thinking(body.reasoning)), box


def _messages(body: ResponsesBody, box: Toolbox) -> tuple[Message, ...]:
    instructions = (Message("system", body.instructions),) if body.instructions else ()
    if isinstance(body.input, str):
        return (*instructions, Message("user", body.input))
    messages = instructions + read_items(body.input, box)
    if not messages:
        raise InvalidRequestError("'input' has no message.", param="input")
    return messages


def _options(body: ResponsesBody, defaults: Sampling) -> GenerateOptions:
    """`max_output_tokens`, this protocol's own name, wins over the others."""
    options = body.options(defaults)
    return replace(options, max_tokens=body.max_output_tokens or options.max_tokens)


def _thinking(reasoning: ReasoningField | None) -> ThinkingWish:
    """A request that says nothing gets thinking."""
    effort = reasoning.effort if reasoning is not None else None
    return ThinkingWish(on=effort not in NO_THINKING)
