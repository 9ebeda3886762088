"""Anthropic messages as neutral ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import msgspec

from mashbox.api.anthropic_blocks import (
    Block,
    Content,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    join_text,
    read_blocks,
)
from mashbox.api.tools import arguments_text
from mashbox.chat.types import Message, ToolCall

BILLING_HEADER = "x-anthropic-billing-header"
"""How a system block's first line begins when it is for billing only. It changes with every prompt."""


class WireMessage(msgspec.Struct):
    """One message of a Messages request."""

    role: Literal["system", "developer", "user", "assistant"]
    content: Content = None


def neutral_messages(system: Content, messages: Sequence[WireMessage]) -> tuple[Message, ...]:
    """The conversation; raises InvalidRequestError naming the block that cannot be read."""
    conversation = [] if system is None else _system(system, "system")
    for i, message in enumerate(messages):
        conversation += _neutral(message, f"messages[{i}].content")
    return tuple(conversation)


def _neutral(message: WireMessage, where: str) -> list[Message]:
    if message.role == "user":
        return _user(read_blocks(message.content, "user", where))
    if message.role == "assistant":
        return [_assistant(read_blocks(message.content, "assistant", where))]
    return _system(message.content, where)


def _system(content: Content, where: str) -> list[Message]:
    blocks = [(place, _without_billing(block)) for place, block in read_blocks(content, "system", where)]
    text = join_text([(place, block) for place, block in blocks if block is not None])
    return [Message("system", text)] if text else []


def _without_billing(block: Block) -> Block | None:
    """None if there is nothing else. Some clients join all of their system prompt into one text."""
    if not isinstance(block, TextBlock) or not block.text.startswith(BILLING_HEADER):
        return block
    rest = block.text.partition("\n")[2].lstrip("\n")
    return TextBlock(rest) if rest else None


def _assistant(blocks: Sequence[tuple[str, Block]]) -> Message:
    thinking = (block.thinking for _, block in blocks if isinstance(block, ThinkingBlock))
    return Message(
        "assistant",
        join_text(blocks),
        thinking="\n".join(text for text in thinking if text),
        tool_calls=tuple(
            ToolCall(block.id, block.name, arguments_text(block.input, f"{where}.input"))
            for where, block in blocks
            if isinstance(block, ToolUseBlock)
        ),
    )


def _user(blocks: Sequence[tuple[str, Block]]) -> list[Message]:
    """The results of calls, then what the user says to them, if anything."""
    results = [_result(block, where) for where, block in blocks if isinstance(block, ToolResultBlock)]
    text = join_text(blocks)
    return results if results and not text else [*results, Message("user", text)]


def _result(block: ToolResultBlock, where: str) -> Message:
    text = join_text(read_blocks(block.content, "tool_result", f"{where}.content"))
    if block.is_error:
        # Templates know no failed results, so the text itself must say it.
        text = f"Error: {text}" if text else "Error"
    return Message("tool", text, tool_call_id=block.tool_use_id)


def loaded_tools(messages: Sequence[WireMessage]) -> frozenset[str]:
    """The names in all `tool_reference` blocks. `messages` have been read without an error."""
    return frozenset(
        block["tool_name"] for block in _all_blocks(messages) if block.get("type") == "tool_reference"
    )


def _all_blocks(messages: Sequence[WireMessage]) -> Iterator[dict[str, Any]]:
    for message in messages:
        for block in message.content if isinstance(message.content, list) else ():
            yield block
            if block.get("type") == "tool_result" and isinstance(block.get("content"), list):
                yield from block["content"]
