"""The bodies of POST /v1/messages and /v1/messages/count_tokens."""

from __future__ import annotations

from mashbox.api.anthropic_blocks import (
    KINDS,
    NOT_TEXT,
    SearchResultBlock,
    TextBlock,
    ThinkingBlock,
    ToolReferenceBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from mashbox.api.anthropic_conversation import WireMessage
from mashbox.api.anthropic_request import CountRequest, MessagesRequest, OutputConfig, ThinkingField
from mashbox.api.anthropic_tools import CLIENT, Choice, ClientTool
from mashbox.api.openapi.generation import ANY_MODEL, shared_notes
from mashbox.api.openapi.schema import (
    WHOLE,
    Notes,
    Schema,
    Table,
    ignored,
    note,
    other,
    ref,
    tagged,
)
from mashbox.engine.types import Sampling

BLOCK_TYPES: dict[type, str] = {kind: name for name, kind in KINDS.items()}
BLOCK_TABLE: Table = {
    TextBlock: {"text": note("The text.")},
    SearchResultBlock: {
        "source": note("Where it was found."),
        "title": note("Its title."),
        "content": note("What it says, as text blocks.", items=ref("MessageBlock")),
    },
    ToolReferenceBlock: {
        "tool_name": note("Name of a tool declared with `defer_loading`: it is shown from now on.")
    },
    ThinkingBlock: {
        "thinking": note("What was thought."),
        "signature": ignored("Ignored: here it proves nothing.", "string"),
    },
    ToolUseBlock: {
        "id": note("Id of the call, which its result names."),
        "name": note("Name of the tool."),
        "input": note("Its arguments."),
    },
    ToolResultBlock: {
        "tool_use_id": note("Id of the call."),
        "content": note("What came of it: a text, or blocks.", items=ref("MessageBlock")),
        "is_error": note("The call failed; the model is told so.", default=False),
    },
}
BLOCK_WORDS: dict[type, str] = {
    TextBlock: "Plain text. `cache_control` and `citations` are ignored.",
    SearchResultBlock: "A text that the client has found somewhere.",
    ToolReferenceBlock: "Loads a tool.",
    ThinkingBlock: "What the model thought earlier.",
    ToolUseBlock: "A call the model made earlier. Only assistant messages have such blocks.",
    ToolResultBlock: "What came of a call. Only user messages have such blocks.",
}


def block_schemas(found: dict[str, Schema]) -> dict[str, Schema]:
    """One schema for each type of block, and `MessageBlock` for any. `found` are those without types."""
    tagged_blocks = {
        f"Message{kind.__name__}": tagged(found[kind.__name__], BLOCK_TYPES[kind]) | note(BLOCK_WORDS[kind])
        for kind in BLOCK_TABLE
    }
    rest = other(
        "Blocks of types that say nothing to a model here are left out. Images, documents and files are "
        "refused with 400: the model reads text.",
        KINDS.keys() | NOT_TEXT,
    )
    some = note("A content block of a request.", anyOf=[*map(ref, tagged_blocks), ref("MessageOtherBlock")])
    return tagged_blocks | {"MessageOtherBlock": rest, "MessageBlock": some}


def prompt_notes() -> Notes:
    """The fields that make the prompt, which both routes have."""
    return {
        "messages": note("The conversation, oldest message first."),
        "system": note("The system prompt: a text, or text blocks.", items=ref("MessageBlock")),
        "tools": note(
            "Tools that the client runs. Those that Anthropic would run, such as web search, are left out.",
            items={"anyOf": [ref("ClientTool"), ref("ServerTool")]},
        ),
        "tool_choice": note("Whether the model calls a tool; absent means `auto`."),
        "thinking": note("Whether the model thinks first; absent means it does not."),
    }


def messages_notes(defaults: Sampling) -> Notes:
    """The fields of a Messages request."""
    return {
        **prompt_notes(),
        **shared_notes(defaults, ANY_MODEL),
        "metadata": ignored("Ignored.", "object"),
        "output_config": note(
            "The form of the answer. `effort` is ignored; `format` is refused: it is plain text."
        ),
    }


CHOICE: Notes = {
    "type": note(
        "`auto`: the model decides. `any`: one call of any tool. `tool`: one call of the tool that `name` "
        "names. `none`: no call."
    ),
    "name": note("Name of one of the tools; only with `tool`, which must have it."),
    WHOLE: {
        "anyOf": [
            {"properties": {"type": {"enum": ["auto", "any", "none"]}}},
            {"properties": {"type": {"const": "tool"}, "name": {"type": "string"}}, "required": ["name"]},
        ]
    },
}
THINKING: Notes = {
    "type": note("`enabled` and `adaptive` think, `disabled` does not."),
    "budget_tokens": note("With `enabled`: most tokens of thinking, at least 1; no limit when absent."),
    WHOLE: {
        "anyOf": [
            {"properties": {"type": {"enum": ["adaptive", "disabled"]}}},
            {"properties": {"type": {"const": "enabled"}, "budget_tokens": {"minimum": 1}}},
        ]
    },
}
TOOL: Notes = {
    "type": ignored("Type of the tool; absent means `custom`.", "string", default=CLIENT),
    "name": note("Name, by which the model calls it. No two tools may have the same."),
    "description": note("What it does, for the model."),
    "input_schema": note("JSON Schema of its arguments."),
    "defer_loading": note(
        "Show it only once a `tool_reference` block or the choice names it.", default=False
    ),
}


def messages_table(defaults: Sampling) -> Table:
    """Words for every type in the two bodies."""
    return {
        MessagesRequest: messages_notes(defaults),
        CountRequest: {"model": ignored("Ignored.", "string"), **prompt_notes()},
        WireMessage: {
            "role": note("Who speaks. `system` and `developer` mean the same."),
            "content": note("What is said: a text, or blocks.", items=ref("MessageBlock")),
        },
        Choice: CHOICE,
        ThinkingField: THINKING,
        OutputConfig: {
            "format": {"type": "null"} | note("Anything but null is refused with 400."),
            "effort": ignored("Ignored.", "string"),
        },
        ClientTool: TOOL,
    }


def server_tool() -> Schema:
    """A tool that is left out."""
    schema = other("A tool that a service of Anthropic's would run. It is left out.", [CLIENT])
    schema["properties"]["input_schema"] = {"type": "null", "description": "Tools of clients have one."}
    return schema
