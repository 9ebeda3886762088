"""Anthropic's content blocks: what is read of each, and where one is refused.

Fields that are not declared here (`cache_control`, `citations`, `signature`, ...) are never looked at.
Blocks of types that are not declared are left out, but for those that only hold what is no text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeVar

import msgspec

from mashbox.api.tools import ToolName
from mashbox.errors import InvalidRequestError
from mashbox.http.body import invalid_field

Content = str | list[dict[str, Any]] | None
Holder = Literal["system", "user", "assistant", "tool_result"]
"""What a list of blocks is the content of."""


class TextBlock(msgspec.Struct):
    """Plain text."""

    text: str


class SearchResultBlock(msgspec.Struct):
    """A text that the client has found somewhere."""

    source: str
    title: str
    content: list[dict[str, Any]]


class ToolReferenceBlock(msgspec.Struct):
    """Loads a tool that was declared with `defer_loading`."""

    tool_name: str


class ThinkingBlock(msgspec.Struct):
    """Earlier thinking, whatever its signature."""

    thinking: str | None = None


class ToolUseBlock(msgspec.Struct):
    """A call the model made earlier."""

    id: str
    name: ToolName
    input: dict[str, Any] | None = None


class ToolResultBlock(msgspec.Struct):
    """What a call gave."""

    tool_use_id: str
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

T = TypeVar("T")


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
    kind = read_type(fields, where)
    if kind in NOT_TEXT:
        raise InvalidRequestError(
            f"'{where}' is a block of type '{kind}', but this model reads text only.", param=where
        )
    if HOLDERS.get(kind, holder) != holder:
        raise InvalidRequestError(
            f"'{where}' is a block of type '{kind}', which only {HOLDERS[kind]} messages have.", param=where
        )
    return read_as(KINDS[kind], fields, where) if kind in KINDS else None


def read_type(fields: dict[str, Any], where: str, absent: str | None = None) -> str:
    """The `type` of an object found at `where`; `absent` is what counts when it has none."""
    kind = fields.get("type")
    kind = absent if kind is None else kind
    if kind is None:
        raise InvalidRequestError(f"Missing required field '{where}.type'.", param=f"{where}.type")
    if not isinstance(kind, str):
        raise InvalidRequestError(
            f"Invalid value for '{where}.type': expected string.", param=f"{where}.type"
        )
    return kind


def read_as(kind: type[T], fields: dict[str, Any], where: str) -> T:
    """An object found at `where` as a `kind`, or InvalidRequestError naming its field."""
    try:
        return msgspec.convert(fields, kind)
    except msgspec.ValidationError as error:
        raise invalid_field(str(error), where) from None


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
