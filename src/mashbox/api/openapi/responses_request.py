"""The body of POST /v1/responses."""

from __future__ import annotations

from mashbox.api.openapi.generation import UNSUPPORTED_LOGPROBS, shared_notes
from mashbox.api.openapi.schema import (
    Notes,
    Schema,
    Table,
    array,
    const,
    ignored,
    note,
    nullable,
    obj,
    other,
    ref,
    string,
    tagged,
)
from mashbox.api.responses_body import ReasoningField, ResponsesBody, TextField, TextFormat
from mashbox.api.responses_input import (
    TOOL_ITEMS,
    AdditionalToolsItem,
    CustomCallItem,
    FunctionCallItem,
    MessageItem,
    OutputItem,
    ReasoningItem,
    ShellCallItem,
    ShellOutputItem,
    ThoughtPart,
)
from mashbox.api.responses_tools import CustomFormat, DeclaredCustom, DeclaredFunction, DeclaredNamespace
from mashbox.engine.types import Sampling

NOT_STORED = "Refused with 400 unless null: nothing is stored here. Send the whole conversation as `input`."
OUTPUT = note("What came of the call: a text, or parts of text.")
CALL_ID = note("Id of the call, which its result names.")
NAMESPACE = note("The namespace that the tool is in, if any.")

ITEM_TABLE: Table = {
    MessageItem: {
        "role": note("Who speaks. `system` and `developer` mean the same."),
        "content": note("What is said: a text, or parts of text."),
    },
    FunctionCallItem: {
        "call_id": CALL_ID,
        "name": note("Name of the function."),
        "namespace": NAMESPACE,
        "arguments": note("Its arguments: JSON as a text, or an object."),
    },
    CustomCallItem: {
        "call_id": CALL_ID,
        "name": note("Name of the tool."),
        "input": note("Its input."),
        "namespace": NAMESPACE,
    },
    OutputItem: {"call_id": note("Id of the call."), "output": OUTPUT},
    ShellCallItem: {
        "action": note("What was to be done."),
        "call_id": note("Id of the call; one of the two ids must be there."),
        "id": note("Id of the item, by which a result may name the call, too."),
    },
    ShellOutputItem: {
        "call_id": note("Id of the call; one of the two ids must be there."),
        "id": note("Either id of the call."),
        "output": OUTPUT,
    },
    ReasoningItem: {"content": note("What was thought; null where it was not kept.")},
    ThoughtPart: {
        "type": note("`reasoning_text` or `text`; parts of other types are left out."),
        "text": note("The text."),
    },
    AdditionalToolsItem: {"tools": note("The tools.", items=ref("ResponsesTool"))},
}
EITHER_ID: list[Schema] = [
    {"properties": {"call_id": {"type": "string", "minLength": 1}}, "required": ["call_id"]},
    {"properties": {"id": {"type": "string"}}, "required": ["id"]},
]


def item_schemas(found: dict[str, Schema]) -> dict[str, Schema]:
    """One schema for each type of input item, and `InputItem` for any. `found` are those without types."""
    message = tagged(found["MessageItem"], "message")
    message["properties"]["type"] = note("May be absent.", type=["string", "null"], enum=["message", None])
    message["required"] = ["role"]
    shell = {"anyOf": EITHER_ID}
    variants = {
        "InputMessage": message | note("One message."),
        "InputFunctionCall": tagged(found["FunctionCallItem"], "function_call"),
        "InputCustomCall": tagged(found["CustomCallItem"], "custom_tool_call"),
        "InputCallOutput": tagged(found["OutputItem"], "function_call_output", "custom_tool_call_output"),
        "InputShellCall": tagged(found["ShellCallItem"], "local_shell_call") | shell,
        "InputShellOutput": tagged(found["ShellOutputItem"], "local_shell_call_output") | shell,
        "InputReasoning": tagged(found["ReasoningItem"], "reasoning"),
        "InputTools": tagged(found["AdditionalToolsItem"], *sorted(TOOL_ITEMS))
        | note("Tools that come with the conversation. All of them are shown."),
    }
    rest = other(
        "Items of types that say nothing to a model here are left out. An `item_reference` is refused with "
        "400: nothing is stored.",
        [*(kind for schema in variants.values() for kind in types_of(schema)), "item_reference"],
    )
    variants["InputOther"] = rest
    return variants | {"InputItem": note("One item of the conversation.", anyOf=[*map(ref, variants)])}


def types_of(schema: Schema) -> list[str]:
    """The values that `type` may have."""
    kind = schema["properties"]["type"]
    return [name for name in kind.get("enum", [kind.get("const")]) if name is not None]


TOOL_TABLE: Table = {
    DeclaredFunction: {
        "name": note("Name, by which the model calls it."),
        "description": note("What it does, for the model."),
        "parameters": note("JSON Schema of its arguments."),
    },
    DeclaredCustom: {
        "name": note("Name, by which the model calls it."),
        "description": note("What it does, for the model."),
        "format": note("What its input looks like."),
    },
    CustomFormat: {
        "syntax": note("Which kind of grammar."),
        "definition": note("The grammar. The model is shown it; it is not enforced."),
    },
    DeclaredNamespace: {
        "name": note("Name of the namespace."),
        "description": note("What its tools are about."),
        "tools": note("Its functions and custom tools; others are left out.", items=ref("NamespacedTool")),
    },
}


def tool_schemas(found: dict[str, Schema]) -> dict[str, Schema]:
    """One schema for each type of tool, and `ResponsesTool` for any. `found` are those without types."""
    wrapped = obj("A function as the chat route declares it.", {"function": ref("FunctionDeclaration")})
    variants = {
        "FunctionTool": tagged(found["DeclaredFunction"], "function"),
        "WrappedFunctionTool": tagged(wrapped, "function"),
        "CustomTool": tagged(found["DeclaredCustom"], "custom"),
        "NamespaceTool": tagged(found["DeclaredNamespace"], "namespace"),
        "OtherTool": other(
            "A tool that OpenAI would run, such as web search. It is left out.",
            ["function", "custom", "namespace"],
        ),
    }
    inner = [ref("FunctionTool"), ref("WrappedFunctionTool"), ref("CustomTool"), ref("NamespacedOtherTool")]
    return {
        "FunctionDeclaration": found["DeclaredFunction"],
        **variants,
        "ResponsesTool": note("One declared tool.", anyOf=[*map(ref, variants)]),
        "NamespacedTool": note("One tool of a namespace.", anyOf=inner),
        "NamespacedOtherTool": other(
            "Any other tool in a namespace. It is left out.", ["function", "custom"]
        ),
    }


def choice_schemas() -> dict[str, Schema]:
    """The tool choice that is an object."""
    name = string("Name of one of the tools, as the client or as the model calls it.")
    properties = {
        "type": string("`function` and `custom` need a name; a tool of any other type is left to the model."),
        "name": nullable(name),
        "namespace": nullable(string("The namespace that the tool is in.")),
        "function": nullable(obj("The name as the chat route has it.", {"name": name})),
    }
    named = {"properties": {"name": {"type": "string", "minLength": 1}}, "required": ["name"]}
    nested = {"properties": {"function": {"type": "object"}}, "required": ["function"]}
    unnamed = {"properties": {"type": {"not": {"enum": ["function", "custom"]}}}}
    one = obj("One tool.", properties, ["name", "namespace", "function"], anyOf=[named, nested, unnamed])
    several = obj(
        "Several tools: the model is shown no others.",
        {
            "type": const("allowed_tools"),
            "tools": array(ref("ToolReference"), "The tools."),
            "mode": note("Whether one must be called.", enum=["auto", "required"], default="auto"),
        },
        ["mode"],
    )
    single = {"allOf": [ref("ToolReference"), {"properties": {"type": {"not": {"const": "allowed_tools"}}}}]}
    choice = note("A choice of one tool, or of several.", anyOf=[single, ref("AllowedTools")])
    return {"ToolReference": one, "AllowedTools": several, "ResponsesToolChoice": choice}


def responses_notes(defaults: Sampling) -> Notes:
    """The fields of a responses request."""
    return {
        "input": note("What the user says, or the items of a conversation.", items=ref("InputItem")),
        "instructions": note("System prompt, put before the conversation."),
        "tools": note("Tools that the client runs.", items=ref("ResponsesTool")),
        "tool_choice": note(
            "`auto`: the model decides. `none`: no call. `required`: one call of any tool. An object "
            "chooses tools.",
            default="auto",
            anyOf=[
                {"type": "string", "enum": ["auto", "none", "required"]},
                ref("ResponsesToolChoice"),
                {"type": "null"},
            ],
        ),
        "parallel_tool_calls": note("Repeated in the response.", default=False),
        "reasoning": note("How much to think."),
        "text": note("The form of the text."),
        "include": note(
            "Ignored, but that an entry which names log probabilities (`logprobs` is in it) is refused "
            "with 400.",
            items={"not": {"type": "string", "pattern": "logprobs"}},
        ),
        "top_logprobs": note(UNSUPPORTED_LOGPROBS, enum=[0, None]),
        "max_output_tokens": note("Most new tokens; counts before `max_tokens` and `max_completion_tokens`."),
        "previous_response_id": {"type": "null"} | note(NOT_STORED),
        "conversation": {"type": "null"} | note(NOT_STORED),
        "metadata": ignored("Repeated in the response when it is an object, else ignored.", "object"),
        **shared_notes(defaults),
        "store": ignored("Ignored: nothing is stored.", "boolean"),
        "client_metadata": ignored("Ignored.", "object"),
    }


def responses_table(defaults: Sampling) -> Table:
    """Words for every type in the body that is not an item or a tool."""
    return {
        ResponsesBody: responses_notes(defaults),
        ReasoningField: {
            "effort": note(
                "`none` and `minimal` answer without thinking; any other text, or nothing, thinks."
            ),
        },
        TextField: {"format": note("The form of the text. Only plain text can be had.")},
        TextFormat: {"type": note("The only form there is.", const="text")},
    }
