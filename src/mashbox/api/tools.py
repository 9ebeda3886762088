"""What every route reads and checks alike about tools and earlier calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from mashbox.chat.types import Tool, ToolChoice
from mashbox.errors import InvalidRequestError
from mashbox.http.echo import echo

ToolName = Annotated[str, Meta(min_length=1, max_length=256, pattern=r"^[^\x00-\x20\x7f]+$")]
"""Without white space and control characters: formats that write names bare need that."""


def arguments_text(arguments: str | dict[str, Any] | None, where: str) -> str:
    """An earlier call's arguments, found at `where`, as JSON text: a text stays as it is.

    Raises InvalidRequestError when an object is nested too deeply.
    """
    if not isinstance(arguments, dict):
        return arguments or "{}"
    try:
        return msgspec.json.encode(arguments).decode()
    except RecursionError:
        raise InvalidRequestError(f"'{where}' is nested too deeply.", param=where) from None


def check_tools(tools: Sequence[Tool]) -> None:
    """Raise InvalidRequestError when two tools have one name."""
    seen: set[str] = set()
    for tool in tools:
        if tool.name in seen:
            raise InvalidRequestError(f"'tools' has two tools named '{echo(tool.name)}'.", param="tools")
        seen.add(tool.name)


def check_choice(choice: ToolChoice, tools: Sequence[Tool]) -> None:
    """Raise InvalidRequestError when a call is asked for that no tool can answer."""
    if choice.mode != "required":
        return
    if choice.name is None and not tools:
        raise InvalidRequestError(
            "'tool_choice' asks for a tool call, but there are no tools.", param="tool_choice"
        )
    if choice.name is not None and all(tool.name != choice.name for tool in tools):
        raise InvalidRequestError(
            f"'tool_choice' names '{echo(choice.name)}', which is not among the tools.", param="tool_choice"
        )
