"""chat/stream_parser.py: the parser of plain answers."""

from __future__ import annotations

from mashbox.chat.stream_parser import PlainText
from mashbox.chat.types import Text
from mashbox.engine.types import TextDelta


def test_plain_text_passes_as_it_comes() -> None:
    parser = PlainText()
    deltas = [TextDelta("id", "a"), TextDelta("id", "<think>")]
    events = [event for delta in deltas for event in parser.feed(delta)]
    assert [*events, *parser.finish()] == [Text("a"), Text("<think>")]
