"""The response object."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mashbox.api.openai_answer import AnswerHead
from mashbox.api.responses_body import ResponsesBody
from mashbox.api.responses_items import Item
from mashbox.api.responses_tools import Toolbox
from mashbox.chat.types import ChatRequest, Done
from mashbox.engine.types import FinishReason, Usage
from mashbox.errors import ContextLengthError, InvalidRequestError, OverloadedError, RequestError
from mashbox.logs.escape import label


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """What stays the same from the first event of a response to its last."""

    answer: AnswerHead
    echo: dict[str, Any]
    """Fields that only repeat the request."""
    tools: Toolbox

    @property
    def id(self) -> str:
        """resp_..."""
        return self.answer.id


def echoed(body: ResponsesBody, request: ChatRequest) -> dict[str, Any]:
    """What the response repeats of the request, defaults filled in."""
    sampling = request.options.sampling
    return {
        "background": False,
        "instructions": body.instructions,
        "max_output_tokens": request.options.max_tokens,
        "metadata": body.metadata if isinstance(body.metadata, dict) else {},
        "parallel_tool_calls": bool(body.parallel_tool_calls),
        "previous_response_id": None,
        "prompt_cache_key": label(body.prompt_cache_key) if isinstance(body.prompt_cache_key, str) else None,
        "reasoning": {"effort": body.reasoning.effort if body.reasoning else None, "summary": None},
        "store": False,
        "temperature": sampling.temperature,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto" if body.tool_choice is None else body.tool_choice,
        "tools": body.tools or [],
        "top_p": sampling.top_p,
        "truncation": "disabled",
    }


def running(head: ResponseHead) -> dict[str, Any]:
    """The response while it is made."""
    return _response(head, "in_progress")


def finished(head: ResponseHead, output: Sequence[Item], done: Done) -> dict[str, Any]:
    """The response once it is there, whole or cut short by a limit."""
    if done.reason is FinishReason.LENGTH:
        details = {"reason": "max_output_tokens"}
        return _response(head, "incomplete", output, usage=done.usage, incomplete_details=details)
    return _response(head, "completed", output, usage=done.usage)


def failed(head: ResponseHead, output: Sequence[Item], error: RequestError) -> dict[str, Any]:
    """The response that an error ended, with the items that were complete by then."""
    told = {"code": failure_code(error), "message": str(error)}
    return _response(head, "failed", output, error=told)


def failure_code(error: RequestError) -> str:
    """The reason why a response failed, in the protocol's few words."""
    match error:
        case ContextLengthError():
            return "context_length_exceeded"
        case OverloadedError():
            return "rate_limit_exceeded"
        case InvalidRequestError():
            return "invalid_prompt"
        case _:
            return "server_error"


def lacks_answer(output: Sequence[Item], done: Done) -> bool:
    """Whether an empty message must be added: clients take a complete response without one for a fault."""
    return done.reason is not FinishReason.LENGTH and all(item["type"] == "reasoning" for item in output)


def _response(
    head: ResponseHead,
    status: str,
    output: Sequence[Item] = (),
    *,
    usage: Usage | None = None,
    error: dict[str, Any] | None = None,
    incomplete_details: dict[str, Any] | None = None,
) -> dict[str, Any]:
    return {
        "id": head.id,
        "object": "response",
        "created_at": head.answer.created,
        "status": status,
        "error": error,
        "incomplete_details": incomplete_details,
        "model": head.answer.model,
        "output": list(output),
        "usage": None if usage is None else _usage(usage),
        **head.echo,
    }


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }
