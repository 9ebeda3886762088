"""Anthropic's content blocks: what is read of each, and where one is refused.

Fields that are not declared here (`cache_control`, `citations`, `signature`, ...) are never looked at.
Blocks of types that are not declared are left out, but for those that only hold what is no text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from mashbox.api.nested import convert, type_of
from mashbox.api.tools import ToolName
from mashbox.api.wire import MAX_MESSAGES, CallId
from mashbox.errors import InvalidRequestError

Blocks = Annotated[list[dict[str, Any]], Meta(max_length=MAX_MESSAGES)]
Content = str | Blocks | None
Holder = Literal["system", "user", "assistant", "tool_result"]
"""What a list of blocks is the content of."""


class TextBlock(msgspec.Struct):
    """Plain text."""

    text: str


class SearchResultBlock(msgspec.Struct):
    """A text that the client has found somewhere."""

    source: str
    title: str
    content: Blocks


class ToolReferenceBlock(msgspec.Struct):
    """Loads a tool that was declared with `defer_loading`."""

    tool_name: ToolName


class ThinkingBlock(msgspec.Struct):
    """Earlier thinking, whatever its signature."""

    thinking: str | None = None


class ToolUseBlock(msgspec.Struct):
    """A call the model made earlier."""

    id: CallId
    name: ToolName
    input: dict[str, Any] | None = None


class ToolResultBlock(msgspec.Struct):
    """What a call gave."""

    tool_use_id: CallId
    content: Content = None
    is_error: bool | None = None


Block = TextBlock | SearchResultBlock | ToolReferenceBlock | ThinkingBlock | ToolUseBlock | ToolResultBlock

KINDS: dict[str, type[Block]] = {
    "text": TextBlock,
    "search_result": SearchResultBlock,
    "tool_reference": ToolReferenceBlock,
    "thinking": ThinkingBlock,
    "tool_use": ToolUseBlock,
    "tool_result": ToolResultBlock,
}
NOT_TEXT = frozenset({"image", "document", "container_upload", "file", "audio", "video"})
HOLDERS: dict[str, Holder] = {"tool_use": "assistant", "tool_result": "user"}
"""Where a block of this type must stand; anywhere else its meaning would be lost."""


def read_blocks(content: Content, holder: Holder, where: str) -> list[tuple[str, Block]]:
    """The blocks of a content found at `where`, each with its place.

    Raises InvalidRequestError naming the block that is malformed, misplaced or no text.
    """
    if content is None:
        return []
    if isinstance(content, str):
        return [(where, TextBlock(content))]
    places = ((f"{where}[{i}]", fields) for i, fields in enumerate(content))
    return [
        (place, block)
        for place, fields in places
        if (block := _read_block(fields, holder, place)) is not None
    ]


def _read_block(fields: dict[str, Any], holder: Holder, where: str) -> Block | None:
    kind = type_of(fields, where)
    if kind in NOT_TEXT:
        raise InvalidRequestError(
            f"'{where}' is a block of type '{kind}', but this model reads text only.", param=where
        )
    if HOLDERS.get(kind, holder) != holder:
        raise InvalidRequestError(
            f"'{where}' is a block of type '{kind}', which only {HOLDERS[kind]} messages have.", param=where
        )
    return convert(fields, KINDS[kind], where) if kind in KINDS else None


def join_text(blocks: Sequence[tuple[str, Block]]) -> str:
    """The text of those blocks that have some, a line for each."""
    texts = (_text(block, where) for where, block in blocks)
    return "\n".join(text for text in texts if text is not None)


def _text(block: Block, where: str) -> str | None:
    match block:
        case TextBlock():
            return block.text
        case ToolReferenceBlock():
            return f"The tool '{block.tool_name}' can be called now."
        case SearchResultBlock():
            found = join_text(read_blocks(block.content, "tool_result", f"{where}.content"))
            return f"{block.title}\n{block.source}\n{found}"
        case _:
            return None
