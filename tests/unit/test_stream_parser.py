"""chat/stream_parser.py: the parser of plain answers."""

from __future__ import annotations

from mashbox.chat.stream_parser import PlainText
from mashbox.chat.types import Text


def test_plain_text_passes_as_it_comes() -> None:
    parser = PlainText()
    assert [*parser.feed("a"), *parser.feed("<think>"), *parser.finish()] == [Text("a"), Text("<think>")]
