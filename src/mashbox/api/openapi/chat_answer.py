"""The answers of POST /v1/chat/completions and /v1/completions."""

from __future__ import annotations

from mashbox.api.openai_answer import (
    FINISH_REASONS,
    ChatTimings,
    ChatUsage,
    PromptTokensDetails,
)
from mashbox.api.openapi.schema import Schema, Table, array, const, integer, note, nullable, obj, ref, string

PROMPT_TOKENS = note("Tokens of the prompt.")
NEW_TOKENS = note("New tokens.")
TOTAL_TOKENS = note("Both together.")
ANSWER_TABLE: Table = {
    ChatUsage: {
        "prompt_tokens": PROMPT_TOKENS,
        "completion_tokens": NEW_TOKENS,
        "total_tokens": TOTAL_TOKENS,
        "prompt_tokens_details": note("More about the prompt's tokens."),
    },
    PromptTokensDetails: {"cached_tokens": note("Those that came from the prompt cache.")},
    ChatTimings: {
        "prompt_n": note("Tokens of the prompt that were computed: not in the prompt cache."),
        "prompt_ms": note("Milliseconds from the time it got a slot to the first new token."),
        "prompt_per_second": note("`prompt_n` for each second of `prompt_ms`; null when there was no time."),
        "predicted_n": note("New tokens."),
        "predicted_ms": note("Milliseconds from the first new token to the last."),
        "predicted_per_second": note(
            "New tokens after the first for each second of `predicted_ms`; null when there was no time."
        ),
        "cache_n": note("Tokens of the prompt that came from the prompt cache."),
        "queue_ms": note("Milliseconds until it got a slot."),
    },
}
"""Words for the types that the answers are made of."""

FINISH = sorted(set(FINISH_REASONS.values()))
CREATED = integer("When the answer began: Unix time, in seconds.")
MODEL = string("Id of the model that answers.")


def finish_reason(description: str, reasons: list[str]) -> Schema:
    """Why an answer ended, null while it has not."""
    return {"type": ["string", "null"], "description": description, "enum": [*reasons, None]}


CHAT_FINISH = (
    "`stop`: the model ended it, or a stop string did. `length`: no room or no tokens were left. "
    "`tool_calls`: there are calls."
)
NO_LOGPROBS = {"type": "null", "description": "Always null."}
INDEX = integer("Always 0.", const=0)


def chat_schemas() -> dict[str, Schema]:
    """Whole chat answers and their chunks."""
    return {
        "ChatCompletion": _completion(),
        "ChatChoice": obj(
            "The one answer.",
            {
                "index": INDEX,
                "message": ref("AnswerMessage"),
                "logprobs": NO_LOGPROBS,
                "finish_reason": string(CHAT_FINISH, enum=[*FINISH, "tool_calls"]),
            },
        ),
        "AnswerMessage": _message(),
        "ToolCall": obj(
            "A call of a function.",
            {
                "id": string("call_..."),
                "type": const("function"),
                "function": obj(
                    "What is called.",
                    {"name": string("Name of the function."), "arguments": string("Its arguments, JSON.")},
                ),
            },
        ),
        "ChatCompletionChunk": _chunk(),
        "ChunkChoice": obj(
            "A piece of the one answer.",
            {
                "index": INDEX,
                "delta": ref("ChatDelta"),
                "logprobs": NO_LOGPROBS,
                "finish_reason": finish_reason(
                    CHAT_FINISH + " Null but in the last piece.", [*FINISH, "tool_calls"]
                ),
            },
        ),
        "ChatDelta": _delta(),
        "ToolCallDelta": _call_delta(),
    }


def _completion() -> Schema:
    return obj(
        "A whole answer.",
        {
            "id": string("chatcmpl-..."),
            "object": const("chat.completion"),
            "created": CREATED,
            "model": MODEL,
            "choices": array(ref("ChatChoice"), "One answer.", minItems=1, maxItems=1),
            "usage": ref("ChatUsage"),
            "timings": ref("ChatTimings"),
        },
        optional=["timings"],
    )


def _message() -> Schema:
    return obj(
        "What the model says.",
        {
            "role": const("assistant"),
            "content": nullable(string("The text; null when there are only calls.")),
            "refusal": {"type": "null", "description": "Always null."},
            "reasoning_content": string("What it thought first; absent when it did not."),
            "tool_calls": array(ref("ToolCall"), "Calls to make; absent when there are none.", minItems=1),
        },
        optional=["reasoning_content", "tool_calls"],
    )


def _chunk() -> Schema:
    return obj(
        "One `data:` line of a stream. `data: [DONE]` ends it. With `stream_options.include_usage` a last "
        "chunk has no choices and the usage, and all others have a usage of null. The chunk with the "
        "finish reason and the one with the usage have timings. A failure is a line with an error (schema "
        "`Error`) that has the answer's id as `request_id`, then `data: [DONE]`. Lines that begin with a "
        "colon are signs of life.",
        {
            "id": string("The same in every chunk: chatcmpl-..."),
            "object": const("chat.completion.chunk"),
            "created": CREATED,
            "model": MODEL,
            "choices": array(ref("ChunkChoice"), "A piece of the answer, or nothing.", maxItems=1),
            "usage": nullable(ref("ChatUsage") | note("In the last chunk, when it was asked for.")),
            "timings": ref("ChatTimings"),
        },
        optional=["usage", "timings"],
    )


def _delta() -> Schema:
    properties = {
        "role": const("assistant") | note("In the first chunk."),
        "content": string("New text."),
        "reasoning_content": string("New thinking."),
        "tool_calls": array(ref("ToolCallDelta"), "A piece of a call."),
    }
    return obj("What is new.", properties, optional=properties)


def _call_delta() -> Schema:
    return obj(
        "A piece of a call: first which function, then its arguments.",
        {
            "index": integer("Number of the call: 0, 1, 2, ..."),
            "id": string("call_..., in the first piece."),
            "type": const("function"),
            "function": obj(
                "What is called.",
                {"name": string("Name of the function."), "arguments": string("Its arguments, JSON.")},
                optional=["name"],
            ),
        },
        optional=["id", "type"],
    )


def completion_schemas() -> dict[str, Schema]:
    """Answers of the route without a template, whole or in pieces."""
    completion = obj(
        "A whole answer, or one `data:` line of a stream, which has no usage. `data: [DONE]` ends a "
        "stream; a failure is a line with an error (schema `Error`) before that.",
        {
            "id": string("cmpl-..., the same in every line."),
            "object": const("text_completion"),
            "created": CREATED,
            "model": MODEL,
            "system_fingerprint": string("seed-N: the seed that was used.", pattern=r"^seed-\d+$"),
            "choices": array(
                ref("CompletionChoice"), "One answer, or a piece of it.", minItems=1, maxItems=1
            ),
            "usage": ref("ChatUsage"),
        },
        optional=["usage", "system_fingerprint"],
    )
    choice = obj(
        "The one answer, or a piece of it.",
        {
            "text": string("The text."),
            "index": INDEX,
            "logprobs": NO_LOGPROBS,
            "finish_reason": finish_reason("`stop` or `length`; null but in the last piece.", FINISH),
        },
    )
    return {"Completion": completion, "CompletionChoice": choice}
