"""The body of a Responses request, as it arrives."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from mashbox.api.wire import (
    MAX_MESSAGES,
    MAX_TOOLS,
    GenerationFields,
    TokenCount,
    check_one_answer,
    no_log_probabilities,
)
from mashbox.errors import InvalidRequestError
from mashbox.http.echo import echo

Entry = dict[str, Any]
"""An input item or a tool: what it must have depends on its type, and unknown types are left out."""
MAX_METADATA_BYTES = 16 * 1024
Mode = Literal["auto", "none", "required"]


class ReasoningField(msgspec.Struct):
    """How much to think."""

    effort: str | None = None


class TextFormat(msgspec.Struct):
    """The wanted form of the text; only plain text is given."""

    type: str


class TextField(msgspec.Struct):
    """How the text should look."""

    format: TextFormat | None = None


class ResponsesBody(GenerationFields, kw_only=True):
    """The body of a responses request."""

    input: str | Annotated[list[Entry], Meta(min_length=1, max_length=MAX_MESSAGES)]
    instructions: str | None = None
    tools: Annotated[list[Entry], Meta(max_length=MAX_TOOLS)] | None = None
    tool_choice: Mode | Entry | None = None
    parallel_tool_calls: bool | None = None
    reasoning: ReasoningField | None = None
    text: TextField | None = None
    include: list[Any] | None = None
    top_logprobs: int | None = None
    max_output_tokens: TokenCount | None = None
    previous_response_id: Any = None
    conversation: Any = None
    metadata: Any = None


def check_body(body: ResponsesBody) -> None:
    """Raise InvalidRequestError for what this server does not do."""
    check_one_answer(body)
    if body.top_logprobs:
        raise no_log_probabilities("top_logprobs")
    if any(isinstance(entry, str) and "logprobs" in entry for entry in body.include or ()):
        raise no_log_probabilities("include")
    _check_format(body.text)
    _check_metadata(body.metadata)
    for param in ("previous_response_id", "conversation"):
        if getattr(body, param) is not None:
            raise InvalidRequestError(
                f"'{param}' is not supported: nothing is stored. Send the whole conversation as 'input'.",
                param=param,
            )


def _check_format(text: TextField | None) -> None:
    if text is not None and text.format is not None and text.format.type != "text":
        raise InvalidRequestError(
            f"'text.format' of type '{echo(text.format.type)}' is not supported; only 'text' is.",
            param="text.format",
        )


def _check_metadata(metadata: Any) -> None:
    """It is sent back with the answer, several times where that is streamed."""
    if metadata is not None and len(msgspec.json.encode(metadata)) > MAX_METADATA_BYTES:
        raise InvalidRequestError(
            f"'metadata' may have {MAX_METADATA_BYTES // 1024} KiB at most.", param="metadata"
        )
