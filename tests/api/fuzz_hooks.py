"""What schemathesis is told about the server under test; it loads this module by its name.

The served document is changed in four places, so that more requests get past the first checks and the
checks know what a document of this version cannot say: fields that take any value lose their type, the
model's id is the only one to ask for, an event stream is a list of events whose data is described, and
limits of thousands are left out, since whoever tries them spends minutes on making the requests.
"""

from __future__ import annotations

from typing import Any

import schemathesis
from schemathesis import Case, CheckContext, HookContext, Response

ONE_MODEL = ("ChatCompletionRequest", "CompletionRequest", "ResponsesRequest")
EXCUSES = (
    "'tool_choice' asks for a tool call, but there are no tools",
    "which is not among the tools",
    "has two tools named",
    "The prompt has no tokens",
    "'input' has no message",
    "which only assistant messages have",
    "which only user messages have",
    "the server sets itself",
    "is nested too deeply",
    "expected integer, got number",  # 1.0 is an integer to JSON Schema
)
"""Why a request that fits its schema may be refused all the same: no schema can say these."""

OUT_OF_REACH = 1000

ENDS = ("event: message_stop\n", "event: response.completed\n", "event: response.incomplete\n")
"""How the last event of a stream begins, where it has a name."""


@schemathesis.hook
def before_load_schema(context: HookContext, raw_schema: dict[str, Any]) -> None:
    """Change the document; see the module."""
    loosen(raw_schema)
    for name in ONE_MODEL:
        model = raw_schema["components"]["schemas"][name]["properties"]["model"]
        del model["type"]
        model["enum"] = [*model["examples"], None]
    for path in raw_schema["paths"].values():
        for operation in path.values():
            content = operation["responses"]["200"].get("content", {})
            if "text/event-stream" in content:
                content["text/event-stream"] = {"schema": event(content["text/event-stream"]["schema"])}


def loosen(value: Any) -> None:
    """Take the type off all fields that do not look at it, and limits that are out of reach."""
    if isinstance(value, dict):
        if value.get("x-any-value"):
            value.pop("type", None)
        for limit in ("maxItems", "maxLength"):
            if isinstance(most := value.get(limit), int) and most >= OUT_OF_REACH:
                del value[limit]
        for entry in value.values():
            loosen(entry)
    elif isinstance(value, list):
        for entry in value:
            loosen(entry)


def event(schema: dict[str, Any]) -> dict[str, Any]:
    """An event with such data, or the one that ends OpenAI's streams."""
    data = {"type": "string", "contentMediaType": "application/json", "contentSchema": schema}
    return {
        "type": "object",
        "required": ["data"],
        "anyOf": [{"properties": {"data": {"const": "[DONE]"}}}, {"properties": {"data": data}}],
    }


@schemathesis.check
def valid_requests_are_answered(ctx: CheckContext, response: Response, case: Case[Any]) -> None:
    """A request that fits its schema is answered, or refused for what a schema cannot say."""
    meta = case.meta
    if meta is None or not meta.generation.mode.is_positive or response.status_code != 400:
        return
    assert any(excuse in response.text for excuse in EXCUSES), response.text


@schemathesis.check
def streams_end(ctx: CheckContext, response: Response, case: Case[Any]) -> None:
    """A stream ends with the event that its protocol ends with."""
    if not response.headers.get("content-type", [""])[0].startswith("text/event-stream"):
        return
    last = response.text.rstrip("\n").rpartition("\n\n")[2]
    assert last == "data: [DONE]" or last.startswith(ENDS), last
