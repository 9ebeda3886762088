"""The answers of POST /v1/messages and /v1/messages/count_tokens."""

from __future__ import annotations

from mashbox.api.anthropic_answer import SIGNATURE, STOP_REASONS, MessageUsage
from mashbox.api.openapi.schema import Schema, Table, array, const, integer, note, nullable, obj, ref, string

ANSWER_TABLE: Table = {
    MessageUsage: {
        "input_tokens": note("Tokens of the prompt that were not in the prompt cache."),
        "cache_creation_input_tokens": note("Always 0.", const=0),
        "cache_read_input_tokens": note("Tokens of the prompt that came from the prompt cache."),
        "output_tokens": note("New tokens."),
    },
}
"""Words for the types that the answers are made of."""

REASONS = sorted({*STOP_REASONS.values(), "tool_use"})
STOP_FIELDS: dict[str, Schema] = {
    "stop_reason": {
        "type": ["string", "null"],
        "description": "Why it ended; null in `message_start`.",
        "enum": [*REASONS, None],
    },
    "stop_sequence": nullable(string("The stop string that ended it, if one did.")),
}
INDEX = integer("Number of the content block: 0, 1, 2, ...")
BLOCKS: dict[str, dict[str, Schema]] = {
    "text": {"text": string("The text.")},
    "thinking": {
        "thinking": string("What the model thought."),
        "signature": string(f"{SIGNATURE}; empty where the block starts.", enum=[SIGNATURE, ""]),
    },
    "tool_use": {
        "id": string("toolu_..., which the result names."),
        "name": string("Name of the tool."),
        "input": {"type": "object", "description": "Its arguments; empty where the block starts."},
    },
}
DELTAS: dict[str, dict[str, Schema]] = {
    "text_delta": {"text": string("New text.")},
    "thinking_delta": {"thinking": string("New thinking.")},
    "signature_delta": {"signature": string("Ends the thinking.", const=SIGNATURE)},
    "input_json_delta": {"partial_json": string("Arguments of the call, JSON.")},
}


def message_schemas() -> dict[str, Schema]:
    """Whole messages, and the answer of count_tokens."""
    message = obj(
        "A whole answer.",
        {
            "id": string("msg_..."),
            "type": const("message"),
            "role": const("assistant"),
            "model": string("The model that the request named, else the one that answers."),
            "content": array(ref("ContentBlock"), "What the model says, thinks and calls."),
            **STOP_FIELDS,
            "usage": ref("MessageUsage"),
        },
    )
    count = obj(
        "The prompt's length.", {"input_tokens": integer("Tokens of the prompt, the template's among them.")}
    )
    return {"Message": message, "ContentBlock": one_of("A part of an answer.", BLOCKS), "TokenCount": count}


def one_of(description: str, kinds: dict[str, dict[str, Schema]]) -> Schema:
    """An object whose `type` tells which fields it has."""
    fields = {name: field for kind in kinds.values() for name, field in kind.items()}
    return {
        "type": "object",
        "description": description,
        "properties": {"type": string("Tells which of the fields are there.", enum=[*kinds]), **fields},
        "required": ["type"],
        "oneOf": [
            {"properties": {"type": {"const": kind}}, "required": ["type", *own]}
            for kind, own in kinds.items()
        ],
    }


def event_schemas() -> dict[str, Schema]:
    """The events of a stream: one schema for each, and `MessageStreamEvent` for any."""
    delta = obj("Why the message ended.", STOP_FIELDS)
    events = {
        "message_start": {"message": ref("Message") | note("The message, still empty.")},
        "ping": {},
        "content_block_start": {
            "index": INDEX,
            "content_block": ref("ContentBlock") | note("The block, empty."),
        },
        "content_block_delta": {"index": INDEX, "delta": one_of("What is new in the block.", DELTAS)},
        "content_block_stop": {"index": INDEX},
        "message_delta": {"delta": delta, "usage": ref("MessageUsage")},
        "message_stop": {},
        "error": {
            "error": ref("AnthropicErrorObject"),
            "request_id": string("The message's id."),
        },
    }
    return named_events(
        "MessageStreamEvent",
        "One `event:` line and one `data:` line. `message_start` comes first, then each block with its "
        "start, deltas and stop, then `message_delta` and `message_stop`; `ping` may stand anywhere. "
        "`error` ends a stream that fails; nothing follows it.",
        events,
        WORDS,
    )


WORDS = {
    "message_start": "The message begins: it has a slot.",
    "ping": "A sign of life, also before `message_start`.",
    "content_block_start": "A content block begins.",
    "content_block_delta": "More of the block.",
    "content_block_stop": "The block is whole.",
    "message_delta": "The message is whole.",
    "message_stop": "The end of the stream.",
    "error": "The stream has failed.",
}


def named_events(
    name: str, description: str, events: dict[str, dict[str, Schema]], words: dict[str, str], **common: Schema
) -> dict[str, Schema]:
    """A schema for each event, and one with the given name for any of them."""
    names = {kind: event_name(name, kind) for kind in events}
    assert words.keys() == events.keys()
    schemas = {
        names[kind]: obj(words[kind], {"type": const(kind), **common, **fields})
        for kind, fields in events.items()
    }
    kind = string("The same as the `event:` line.", enum=[*events])
    schemas[name] = {
        "type": "object",
        "description": description,
        "properties": {"type": kind, **common, **_merged([*events.values()])},
        "required": ["type", *common],
        "oneOf": [ref(event) for event in names.values()],
        "discriminator": {
            "propertyName": "type",
            "mapping": {kind: ref(event)["$ref"] for kind, event in names.items()},
        },
    }
    return schemas


def _merged(events: list[dict[str, Schema]]) -> dict[str, Schema]:
    """Every field of any event; one that differs from event to event is only told in general."""
    fields: dict[str, Schema] = {}
    for name, field in (entry for event in events for entry in event.items()):
        if fields.setdefault(name, field) != field:
            same = {key: value for key, value in field.items() if fields[name].get(key) == value}
            words = sorted({fields[name]["description"], field["description"]})
            fields[name] = same | {"description": " ".join(words)}
    return fields


def event_name(name: str, kind: str) -> str:
    """The name of an event's schema."""
    prefix = name.removesuffix("StreamEvent")
    words = kind.replace(".", "_").split("_")
    if words[0].capitalize() == prefix:
        words = words[1:]
    return prefix + "".join(word.capitalize() for word in words) + "Event"
