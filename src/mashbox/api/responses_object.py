"""The response object, and the items of its output."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mashbox.api.openai_answer import AnswerHead
from mashbox.api.responses_body import ResponsesBody
from mashbox.api.responses_tools import Toolbox, custom_input
from mashbox.chat.types import Call, ChatRequest, Done
from mashbox.engine.types import FinishReason, Usage
from mashbox.errors import ContextLengthError, InvalidRequestError, OverloadedError, RequestError

Item = dict[str, Any]


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
        "prompt_cache_key": body.prompt_cache_key if isinstance(body.prompt_cache_key, str) else None,
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


@dataclass(frozen=True, slots=True)
class TextItem:
    """An item that is nothing but text: the message, or the reasoning."""

    id: str
    is_message: bool

    @property
    def part_type(self) -> str:
        """The type of its one part; events about its text have this name, too."""
        return "output_text" if self.is_message else "reasoning_text"

    def part(self, text: str) -> dict[str, Any]:
        """Its one part."""
        part = {"type": self.part_type, "text": text}
        return part | {"annotations": [], "logprobs": []} if self.is_message else part

    def started(self) -> Item:
        """The item before it has a part."""
        return self._item("in_progress", [])

    def completed(self, text: str) -> Item:
        """The item with all of its text."""
        return self._item("completed", [self.part(text)])

    def _item(self, status: str, content: list[dict[str, Any]]) -> Item:
        if self.is_message:
            kind: Item = {"type": "message", "role": "assistant"}
        else:
            kind = {"type": "reasoning", "summary": []}
        return {"id": self.id, **kind, "status": status, "content": content}


def new_message() -> TextItem:
    """A message with a new id."""
    return TextItem(new_id("msg_"), is_message=True)


def new_reasoning() -> TextItem:
    """Reasoning with a new id."""
    return TextItem(new_id("rs_"), is_message=False)


@dataclass(frozen=True, slots=True)
class CallItem:
    """A call of a function or of a custom tool; `payload` are its arguments or its input."""

    id: str
    call_id: str
    name: str
    namespace: str | None
    custom: bool
    payload: str

    @property
    def field(self) -> str:
        """Where the item has its payload."""
        return "input" if self.custom else "arguments"

    @property
    def event(self) -> str:
        """The beginning of the names of the events about its payload."""
        return "response.custom_tool_call_input" if self.custom else "response.function_call_arguments"

    def started(self) -> Item:
        """The item before it has its payload."""
        return self._item("in_progress", "")

    def completed(self) -> Item:
        """The whole item."""
        return self._item("completed", self.payload)

    def _item(self, status: str, payload: str) -> Item:
        item = {
            "id": self.id,
            "type": "custom_tool_call" if self.custom else "function_call",
            "status": status,
            "call_id": self.call_id,
            "name": self.name,
            self.field: payload,
        }
        return item if self.namespace is None else item | {"namespace": self.namespace}


def new_call(call: Call, tools: Toolbox) -> CallItem:
    """A call with new ids, told as the client declared the tool."""
    tool = tools.id_of(call.name)
    custom = tool.kind == "custom"
    return CallItem(
        new_id("ctc_" if custom else "fc_"),
        new_id("call_"),
        tool.name,
        tool.namespace,
        custom,
        custom_input(call.arguments) if custom else call.arguments,
    )


def new_id(prefix: str) -> str:
    """`prefix` and 32 hex digits."""
    return prefix + uuid.uuid4().hex


def lacks_answer(output: Sequence[Item], done: Done) -> bool:
    """Whether an empty message must be added: clients take a complete response without one for a fault."""
    return done.reason is not FinishReason.LENGTH and all(item["type"] == "reasoning" for item in output)
