"""Results find their calls, whatever the ids and the order."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mashbox.chat.pairing import pair_results
from mashbox.chat.types import Message, ToolCall


def calling(*ids: str) -> Message:
    return Message("assistant", "", tool_calls=tuple(ToolCall(i, f"f{i}", "{}") for i in ids))


def result(call_id: str, text: str) -> Message:
    return Message("tool", text, tool_call_id=call_id)


def shown(messages: Sequence[Message]) -> list[str]:
    """One word a message: `call:id:function`, `id=text` or `role:text`."""
    words = []
    for m in messages:
        if m.tool_calls:
            words.append(" ".join(f"{call.id}:{call.name}" for call in m.tool_calls))
        else:
            words.append(f"{m.tool_call_id}={m.content}" if m.role == "tool" else f"{m.role}:{m.content}")
    return words


USER = Message("user", "U")


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        pytest.param([USER], ["user:U"], id="no calls"),
        pytest.param(
            [calling("a", "b"), result("b", "B"), result("a", "A")],
            ["call00001:fa call00002:fb", "call00001=A", "call00002=B"],
            id="out of order",
        ),
        pytest.param(
            [calling("a"), USER, result("a", "A")],
            ["call00001:fa", "call00001=A", "user:U"],
            id="late",
        ),
        pytest.param([result("x", "X"), USER], ["user:X", "user:U"], id="no such call"),
        pytest.param(
            [calling("a"), result("a", "A"), result("a", "again")],
            ["call00001:fa", "call00001=A", "user:again"],
            id="answered twice",
        ),
        pytest.param(
            [calling("a", "b"), result("b", "B"), USER],
            ["call00001:fa call00002:fb", "call00002=B", "user:U"],
            id="a call without a result",
        ),
        pytest.param(
            [calling("a"), result("a", "1"), calling("a"), result("a", "2")],
            ["call00001:fa", "call00001=1", "call00002:fa", "call00002=2"],
            id="ids used again",
        ),
        pytest.param(
            [calling("a", "a"), result("a", "1"), result("a", "2")],
            ["call00001:fa call00002:fa", "call00001=1", "call00002=2"],
            id="one id for two calls",
        ),
        pytest.param(
            [calling("a"), calling("b"), result("a", "A"), result("b", "B")],
            ["call00001:fa", "call00001=A", "call00002:fb", "call00002=B"],
            id="two messages with calls in a row",
        ),
    ],
)
def test_pairs(messages: list[Message], expected: list[str]) -> None:
    assert shown(pair_results(messages)) == expected


any_message = st.one_of(
    st.lists(st.sampled_from("abc"), max_size=3).map(lambda ids: calling(*ids)),
    st.builds(result, st.sampled_from("abcd"), st.sampled_from("123")),
    st.just(USER),
)


@given(st.lists(any_message, max_size=10))
def test_nothing_is_lost_and_all_results_have_calls(messages: list[Message]) -> None:
    paired = pair_results(messages)
    assert sorted(m.content for m in paired) == sorted(m.content for m in messages)
    ids = [call.id for m in paired for call in m.tool_calls]
    assert ids == [f"call{number:05d}" for number in range(1, len(ids) + 1)]
    answered = [m.tool_call_id for m in paired if m.role == "tool"]
    assert len(set(answered)) == len(answered)
    assert set(answered) <= set(ids)
    assert pair_results(paired) == paired
