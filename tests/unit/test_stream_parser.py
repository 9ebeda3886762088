"""chat/stream_parser.py: plain answers, and answers with thinking and calls."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mashbox.chat.formats.harmony import Harmony
from mashbox.chat.formats.hermes import Hermes
from mashbox.chat.stream_parser import AnswerParser, PlainText, StreamParser
from mashbox.chat.types import Block, Call, Text, Thinking, Tool, join_blocks
from mashbox.engine.types import TextDelta

Piece = tuple[bool, str]  # thinking?, text


def say(text: str) -> Piece:
    return False, text


def think(text: str) -> Piece:
    return True, text


def events(parser: StreamParser, pieces: list[Piece]) -> tuple[Block, ...]:
    parts = [part for thinking, text in pieces for part in parser.feed(TextDelta("id", text, thinking))]
    return join_blocks([*parts, *parser.finish()])


def parser(*, reads: bool = True, keep: bool = True) -> AnswerParser:
    return AnswerParser(Hermes().reader([Tool("get")]) if reads else None, keep)


CALL = '<tool_call>{"name": "get", "arguments": {}}</tool_call>'
A_CALL = Call("get", "{}")

TABLE: dict[str, tuple[list[Piece], list[Block]]] = {
    "nothing": ([], []),
    "empty": ([say("")], []),
    "text": ([say(" a\n")], [Text(" a\n")]),
    "white space alone is text": ([say(" \n ")], [Text(" \n ")]),
    "thinking and text": ([think("\n a b \n"), say("\n\nc \n")], [Thinking("a b"), Text("c \n")]),
    "white space before the first block": ([say(" \n"), think("a"), say("b")], [Thinking("a"), Text("b")]),
    "text before the first block": (
        [say("\n x \n"), think("a"), say(" b")],
        [Text("\n x \n"), Thinking("a"), Text("b")],
    ),
    "nothing but thinking": ([think(" \n a\n")], [Thinking("a")]),
    "an empty block": ([think("\n\n"), say("\n\nb")], [Text("b")]),
    "white space after a block": ([think("a"), say("\n\n")], [Thinking("a")]),
    "two blocks": (
        [think("a\n"), say("\nb \n"), think(" c"), say("\nd")],
        [Thinking("a"), Text("b \n"), Thinking("c"), Text("d")],
    ),
    "white space inside thinking": ([think("a \n b"), say("c")], [Thinking("a \n b"), Text("c")]),
    "a call after thinking": ([think("a"), say(f"\n\n{CALL}\n")], [Thinking("a"), A_CALL]),
    "a call in thinking is thinking": ([think(CALL), say("b")], [Thinking(CALL), Text("b")]),
    "held back text is finished by thinking": (
        [say("x <tool_"), think("a"), say("call>")],
        [Text("x <tool_"), Thinking("a"), Text("call>")],
    ),
    "a call, thinking, a call": (
        [say(CALL), think(" b "), say(f"\n{CALL} \n")],
        [A_CALL, Thinking("b"), A_CALL],
    ),
}


@pytest.mark.parametrize(("pieces", "expected"), TABLE.values(), ids=TABLE)
@given(data=st.data())
def test_any_cut_gives_the_same_events(
    pieces: list[Piece], expected: list[Block], data: st.DataObject
) -> None:
    cut = [piece for thinking, text in pieces for piece in cuts(data, thinking, text)]
    assert list(events(parser(), pieces)) == expected
    assert list(events(parser(), cut)) == expected
    kept = join_blocks([block for block in expected if not isinstance(block, Thinking)])
    assert events(parser(keep=False), cut) == kept


def cuts(data: st.DataObject, thinking: bool, text: str) -> list[Piece]:
    places = sorted(data.draw(st.sets(st.integers(0, len(text)))))
    return [(thinking, text[a:b]) for a, b in zip([0, *places], [*places, len(text)], strict=True)]


HARMONY_CALL = "<|channel|>commentary to=functions.get <|constrain|>json<|message|>{}"


def test_channels_around_thinking() -> None:
    """The worker takes the analysis channel out, and with it the end mark of its message."""
    pieces = [
        say("<|channel|>commentary<|message|>First.<|end|><|start|>assistant"),
        think("a"),
        say(f"<|start|>assistant{HARMONY_CALL}<|call|><|start|>assistant"),
        think("b"),
        say("<|start|>assistant<|channel|>final<|message|>Last."),
    ]
    expected = [Text("First."), Thinking("a"), A_CALL, Thinking("b"), Text("Last.")]
    for cut in (pieces, [(thinking, char) for thinking, text in pieces for char in text]):
        assert list(events(AnswerParser(Harmony().reader([Tool("get")]), True), cut)) == expected


def test_without_a_reader_calls_are_text() -> None:
    pieces = [think("a"), say(f"\n{CALL}\n")]
    assert list(events(parser(reads=False), pieces)) == [Thinking("a"), Text(f"{CALL}\n")]


def test_plain_text_passes_as_it_comes() -> None:
    pieces = [say("a"), say("<think>")]
    assert list(events(PlainText(), pieces)) == [Text("a<think>")]
