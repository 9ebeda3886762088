"""What the tests of the tool formats share."""

from __future__ import annotations

from collections.abc import Sequence

from mashbox.chat.formats.choose import choose_format
from mashbox.chat.formats.format import CallReader
from mashbox.chat.types import Block, Tool, join_blocks

WEATHER = Tool(
    "get_weather",
    "The weather of a place.",
    {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "days": {"type": "integer"},
            "exact": {"type": "boolean"},
            "where": {"type": "object", "properties": {"lat": {"type": "number"}}},
            "tags": {"type": "array", "items": {"type": "string"}},
            "unit": {"enum": ["C", "F"]},
            "limit": {"anyOf": [{"type": "number"}, {"type": "null"}]},
        },
        "required": ["city"],
    },
)
NOTE = Tool("note", "", {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]})
PING = Tool("ping")
TOOLS = (WEATHER, NOTE, PING)


def reader(name: str, tools: Sequence[Tool] = TOOLS) -> CallReader:
    return choose_format(None, name).reader(tools)


def read(reader: CallReader, pieces: Sequence[str]) -> tuple[Block, ...]:
    parts: list[Block] = [part for piece in pieces for part in reader.feed(piece)]
    return join_blocks([*parts, *reader.finish()])
