"""The bodies of POST /v1/chat/completions and /v1/completions."""

from __future__ import annotations

from mashbox.api.openai_chat import ChatCompletionRequest, ResponseFormat, StreamOptions
from mashbox.api.openai_completions import CompletionRequest
from mashbox.api.openai_messages import (
    TEXT_PARTS,
    CalledFunction,
    ChatMessage,
    ChatTool,
    ContentPart,
    FunctionSpec,
    MessageToolCall,
    NamedChoice,
    NamedFunction,
)
from mashbox.api.openapi.generation import MERGE, UNSUPPORTED_LOGPROBS, shared_notes
from mashbox.api.openapi.schema import WHOLE, Notes, Schema, Table, ignored, note
from mashbox.engine.types import Sampling

PART: Notes = {
    "type": note(
        "What the part is. Images, audio and files are refused: the model reads text.",
        enum=[*sorted(TEXT_PARTS), "refusal"],
    ),
    "text": note("The text of all types but `refusal`."),
    "refusal": note("The text of a `refusal`."),
    WHOLE: note(
        "One part of a message's content. Parts become lines of one text.",
        anyOf=[
            {
                "properties": {"type": {"enum": sorted(TEXT_PARTS)}, "text": {"type": "string"}},
                "required": ["text"],
            },
            {
                "properties": {"type": {"const": "refusal"}, "refusal": {"type": "string"}},
                "required": ["refusal"],
            },
        ],
    ),
}
MESSAGE: Notes = {
    "role": note("Who speaks. `system` and `developer` mean the same."),
    "content": note("What is said: a text, parts of text, or nothing."),
    "tool_calls": note("Of `assistant`: the calls it made."),
    "tool_call_id": note("Of `tool`, which must have it: the id of the call that this is the result of."),
    "reasoning_content": note("Of `assistant`: what it thought before it said this."),
    "name": ignored("Ignored.", "string"),
    WHOLE: note(
        "One message of the conversation.",
        anyOf=[
            {"properties": {"role": {"enum": ["system", "developer", "user", "assistant"]}}},
            {
                "properties": {"role": {"const": "tool"}, "tool_call_id": {"type": "string"}},
                "required": ["tool_call_id"],
            },
        ],
    ),
}
COMPLETION_LOGPROBS: Schema = {"type": ["integer", "null"]} | note(UNSUPPORTED_LOGPROBS, enum=[None])


def chat_notes(defaults: Sampling) -> Notes:
    """The fields of a chat request."""
    return {
        "messages": note("The conversation, oldest message first."),
        "tools": note("Functions that the model may call. Tools of other types are left out."),
        "tool_choice": note(
            "`auto`: the model decides. `none`: no call. `required`: one call of any tool. An object that "
            "names a function: one call of it.",
            default="auto",
        ),
        "stream_options": note("Settings of a stream."),
        "chat_template_kwargs": note(
            "Variables for the model's chat template. Those that the server sets itself are refused.",
            properties={
                "enable_thinking": {"type": ["boolean", "null"], "description": "Think first, or do not."}
            },
        ),
        "enable_thinking": note("Short for `chat_template_kwargs.enable_thinking`, which wins."),
        "response_format": note("The form of the answer. Only text can be had: JSON modes are refused."),
        "logprobs": note(UNSUPPORTED_LOGPROBS, enum=[False, None]),
        "top_logprobs": note(UNSUPPORTED_LOGPROBS, enum=[0, None]),
        **shared_notes(defaults),
        "merge": ignored(MERGE, "boolean", default=True),
        "store": ignored("Ignored: nothing is stored.", "boolean"),
    }


def completion_notes(defaults: Sampling) -> Notes:
    """The fields of a completion request."""
    return {
        "prompt": note(
            "The text to go on with, as it is or as the only one of a list. Control tokens in it count as "
            "such.",
            minItems=1,
            maxItems=1,
        ),
        "logprobs": COMPLETION_LOGPROBS,
        **shared_notes(defaults),
        "merge": ignored(MERGE, "boolean", default=True),
    }


def chat_table(defaults: Sampling) -> Table:
    """Words for every type in the two bodies."""
    return {
        ChatCompletionRequest: chat_notes(defaults),
        CompletionRequest: completion_notes(defaults),
        ChatMessage: MESSAGE,
        ContentPart: PART,
        MessageToolCall: {
            "id": note("Id of the call, which its result names."),
            "function": note("What was called."),
        },
        CalledFunction: {
            "name": note("Name of the function."),
            "arguments": note("Its arguments: JSON as a text, or an object."),
        },
        ChatTool: {
            "type": note("`function`; tools of any other type cannot run here and are left out."),
            "function": note("The function; without it the tool is left out."),
        },
        FunctionSpec: {
            "name": note("Name, by which the model calls it. No two tools may have the same."),
            "description": note("What it does, for the model."),
            "parameters": note("JSON Schema of its arguments."),
        },
        NamedChoice: {"type": note("Always `function`."), "function": note("Which one.")},
        NamedFunction: {"name": note("Name of one of the tools.")},
        StreamOptions: {
            "include_usage": note(
                "End the stream with a chunk that has no choices and the usage.", default=False
            )
        },
        ResponseFormat: {"type": note("The only form there is.", const="text")},
    }
