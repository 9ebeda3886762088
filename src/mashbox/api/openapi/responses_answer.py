"""The answers of POST /v1/responses."""

from __future__ import annotations

from mashbox.api.openapi.messages_answer import named_events, one_of
from mashbox.api.openapi.schema import Schema, array, const, integer, nullable, obj, ref, string

STATUS = string("Whether it is whole.", enum=["in_progress", "completed"])
ITEM_ID = string("Id of the item.")
ITEMS: dict[str, dict[str, Schema]] = {
    "message": {
        "id": ITEM_ID,
        "status": STATUS,
        "role": string("`message`: always assistant.", const="assistant"),
        "content": array(
            ref("ResponsePart"), "`message` and `reasoning`: the parts, none where the item begins."
        ),
    },
    "reasoning": {
        "id": ITEM_ID,
        "status": STATUS,
        "summary": array({}, "`reasoning`: always empty.", maxItems=0),
        "content": array(
            ref("ResponsePart"), "`message` and `reasoning`: the parts, none where the item begins."
        ),
    },
    "function_call": {
        "id": ITEM_ID,
        "status": STATUS,
        "call_id": string("Calls: call_..., which the result names."),
        "name": string("Calls: name of the tool."),
        "arguments": string("`function_call`: arguments, JSON; empty where the item begins."),
    },
    "custom_tool_call": {
        "id": ITEM_ID,
        "status": STATUS,
        "call_id": string("Calls: call_..., which the result names."),
        "name": string("Calls: name of the tool."),
        "input": string("`custom_tool_call`: its input as it is; empty where the item begins."),
    },
}
PARTS: dict[str, dict[str, Schema]] = {
    "output_text": {
        "text": string("The text."),
        "annotations": array({}, "`output_text`: always empty.", maxItems=0),
        "logprobs": array({}, "`output_text`: always empty.", maxItems=0),
    },
    "reasoning_text": {"text": string("The text.")},
}
USAGE = obj(
    "Tokens of the response.",
    {
        "input_tokens": integer("Tokens of the prompt."),
        "input_tokens_details": obj(
            "More about the prompt's tokens.",
            {
                "cached_tokens": integer("Those that came from the prompt cache."),
                "cache_write_tokens": integer("Always 0.", const=0),
            },
        ),
        "output_tokens": integer("New tokens."),
        "output_tokens_details": obj(
            "More about the new tokens.", {"reasoning_tokens": integer("Those of the thinking.")}
        ),
        "total_tokens": integer("Both together."),
    },
)


def response_schemas() -> dict[str, Schema]:
    """The response and what it is made of."""
    item = one_of("One item of a response's output.", ITEMS)
    item["properties"]["namespace"] = string("Calls: the namespace of the tool; absent when it has none.")
    item["required"] = ["type", "id"]
    return {
        "Response": response(),
        "ResponseItem": item,
        "ResponsePart": one_of("The text of an item.", PARTS),
        "ResponseUsage": USAGE,
    }


def response() -> Schema:
    """The response object."""
    own: dict[str, Schema] = {
        "id": string("resp_..."),
        "object": const("response"),
        "created_at": integer("When the response began: Unix time, in seconds."),
        "status": string(
            "`incomplete` when no tokens were left; `in_progress` and `failed` only in a stream.",
            enum=["in_progress", "completed", "incomplete", "failed"],
        ),
        "error": nullable(
            obj("Why it failed.", {"code": string("One word."), "message": string("One sentence.")})
        ),
        "incomplete_details": nullable(
            obj(
                "Why it is incomplete.",
                {"reason": string("The limit that was reached.", const="max_output_tokens")},
            )
        ),
        "model": string("Id of the model that answers."),
        "output": array(ref("ResponseItem"), "What the model says, thinks and calls."),
        "usage": nullable(ref("ResponseUsage") | {"description": "Null until the response has ended."}),
    }
    return obj("A response, whole or as far as it has come.", own | echo())


def echo() -> dict[str, Schema]:
    """What a response repeats of its request."""
    return {
        "background": {"type": "boolean", "description": "Always false.", "const": False},
        "instructions": nullable(string("From the request.")),
        "max_output_tokens": nullable(integer("From the request.")),
        "metadata": {"type": "object", "description": "From the request."},
        "parallel_tool_calls": {"type": "boolean", "description": "From the request."},
        "previous_response_id": {"type": "null", "description": "Always null."},
        "prompt_cache_key": nullable(string("From the request.")),
        "reasoning": obj(
            "From the request.",
            {
                "effort": nullable(string("From the request.")),
                "summary": {"type": "null", "description": "Always null."},
            },
        ),
        "store": {"type": "boolean", "description": "Always false.", "const": False},
        "temperature": {"type": "number", "description": "What was used."},
        "text": obj("The form of the text.", {"format": obj("Plain text.", {"type": const("text")})}),
        "tool_choice": {"type": ["string", "object"], "description": "From the request."},
        "tools": array({"type": "object"}, "From the request."),
        "top_p": {"type": "number", "description": "What was used."},
        "truncation": string("Always disabled.", const="disabled"),
    }


NUMBER = integer("1, 2, 3, ...", minimum=1)
OUTPUT_INDEX = integer("Number of the item: 0, 1, 2, ...")
IN_CALL = {"item_id": string("The item it belongs to."), "output_index": OUTPUT_INDEX}
IN_TEXT = IN_CALL | {"content_index": integer("Number of the part: always 0.", const=0)}
PART = {**IN_TEXT, "part": ref("ResponsePart")}
ITEM = {"output_index": OUTPUT_INDEX, "item": ref("ResponseItem")}
DELTA = {"delta": string("What is new.")}
WHOLE_TEXT = {"text": string("All of the text.")}
LOGPROBS = {"logprobs": array({}, "Always empty.", maxItems=0)}
RESPONSE = {"response": ref("Response")}
EVENTS: dict[str, tuple[str, dict[str, Schema]]] = {
    "response.created": ("The response begins.", RESPONSE),
    "response.in_progress": ("The response is being made; repeated as a sign of life.", RESPONSE),
    "response.output_item.added": ("An item begins.", ITEM),
    "response.content_part.added": ("The item's text begins.", PART),
    "response.output_text.delta": ("More text of a message.", IN_TEXT | LOGPROBS | DELTA),
    "response.output_text.done": ("All text of a message.", IN_TEXT | LOGPROBS | WHOLE_TEXT),
    "response.reasoning_text.delta": ("More thinking.", IN_TEXT | DELTA),
    "response.reasoning_text.done": ("All of the thinking.", IN_TEXT | WHOLE_TEXT),
    "response.content_part.done": ("The item's text is whole.", PART),
    "response.function_call_arguments.delta": ("Arguments of a call.", IN_CALL | DELTA),
    "response.function_call_arguments.done": (
        "All arguments of a call.",
        IN_CALL | {"arguments": string("The arguments, JSON.")},
    ),
    "response.custom_tool_call_input.delta": ("Input of a custom tool.", IN_CALL | DELTA),
    "response.custom_tool_call_input.done": (
        "All input of a custom tool.",
        IN_CALL | {"input": string("The input.")},
    ),
    "response.output_item.done": ("The item is whole.", ITEM),
    "response.completed": ("The response is whole: the end of the stream.", RESPONSE),
    "response.incomplete": ("No tokens were left: the end of the stream.", RESPONSE),
    "error": (
        "The response has failed; `response.failed` follows.",
        {
            "code": nullable(string("One word.")),
            "message": string("One sentence."),
            "param": nullable(string("The field that is wrong, if one is.")),
            "request_id": string("The response's id."),
        },
    ),
    "response.failed": ("The response as it failed: the end of the stream.", RESPONSE),
}


def event_schemas() -> dict[str, Schema]:
    """The events of a stream: one schema for each, and `ResponseStreamEvent` for any."""
    return named_events(
        "ResponseStreamEvent",
        "One `event:` line and one `data:` line.",
        {name: fields for name, (_, fields) in EVENTS.items()},
        {name: words for name, (words, _) in EVENTS.items()},
        sequence_number=NUMBER,
    )
