"""The soak's checks: each of them can fail."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import replace

import msgspec
import pytest
from soak.check import Checks
from soak.conversation import Conversation, Family, Lengths
from soak.exchange import DONE, Ask, Counts, Reply
from soak.markers import Markers
from soak.outcome import Memory, Outcome
from soak.watch import MARGIN, MIB, Health

LENGTHS = Lengths(system=5, question=4)


def make_reply(text: str = "yes", cache_n: int = 0, prompt_n: int = 10, predicted_n: int = 2) -> Reply:
    return Reply([text], ["stop", DONE], Counts(prompt_n, cache_n, predicted_n))


class Reference:
    """Says the same to everything."""

    def __init__(self, reply: Reply) -> None:
        self._reply = reply

    async def answer(self, ask: Ask) -> Reply:
        return self._reply


def compare(reply: Reply, cold: Reply) -> list[str]:
    """The findings about a greedy answer beside its cold one."""

    async def run() -> list[str]:
        checks = Checks(Markers(1), Reference(cold))
        await checks.take(Ask((("user", "well?"),), 2), reply)
        task = asyncio.create_task(checks.compare())
        await checks.settled()
        task.cancel()
        return checks.findings

    return asyncio.run(run())


def test_an_answer_like_the_cold_one_is_right() -> None:
    assert compare(make_reply(cache_n=4, prompt_n=6), make_reply()) == []


@pytest.mark.parametrize(
    ("reply", "complaint"),
    [
        (make_reply("no"), "an answer differs from the cold one: 'no' and 'yes', with 0 tokens used again"),
        (make_reply(predicted_n=3), "3 new tokens, 2 cold: 'yes'"),
        (make_reply(cache_n=1), "a prompt of 10 tokens counted 11"),
        (Reply(["yes"], ["stop"], Counts(10, 0, 2)), "an answer ended with ['stop']"),
        (
            Reply(["yes"], ["stop", DONE, DONE], Counts(10, 0, 2)),
            f"an answer ended with {['stop', DONE, DONE]}",
        ),
        (
            Reply(["yes"], ["stop", "stop", DONE], Counts(10, 0, 2)),
            "an answer ended with ['stop', 'stop', '[DONE]']",
        ),
        (Reply([], ["error: it failed", DONE]), "an answer ended with ['error: it failed', '[DONE]']"),
        (Reply(), "an answer ended with []"),
    ],
)
def test_what_is_wrong_with_an_answer_is_found(reply: Reply, complaint: str) -> None:
    assert compare(reply, make_reply()) == [complaint]


def test_a_word_of_another_conversation_is_found_and_one_of_its_own_is_not() -> None:
    markers = Markers(1)
    mine, other = (Conversation.new(name, None, LENGTHS, markers) for name in ("a", "b"))
    mine.ask(random.Random(1))

    def findings(text: str) -> list[str]:
        checks = Checks(markers, None)
        asyncio.run(checks.take(Ask(mine.messages, 5), make_reply(text)))
        return checks.findings

    assert findings(f"The code word is {mine.word}.") == []
    said = f'Ah, "{other.word.title()}s"!'
    assert findings(said) == [f"an answer has {other.word} of another conversation: {said!r}"]


def test_an_old_question_is_no_longer_in_an_edited_prompt() -> None:
    markers = Markers(1)
    family = Family.new("shared", LENGTHS, markers)
    conversation = Conversation.new("a", family, LENGTHS, markers)
    pick = random.Random(3)
    conversation.ask(pick)
    before = conversation.messages
    conversation.answer("yes")
    conversation.edit(pick)
    assert [role for role, _ in conversation.messages] == ["system", "user", "assistant", "user"]
    assert conversation.messages[:-1] == before[:-1]
    assert conversation.messages[-1] != before[-1]
    assert conversation.system.startswith(family.text)


def test_an_open_question_is_asked_again() -> None:
    conversation = Conversation.new("a", None, LENGTHS, Markers(1))
    pick = random.Random(1)
    conversation.ask(pick)
    before = conversation.messages
    conversation.ask(pick)
    assert conversation.messages == before
    conversation.answer("yes")
    conversation.ask_again()
    assert conversation.messages == before


def test_words_are_given_out_once_and_the_same_for_a_seed() -> None:
    markers, again = Markers(7), Markers(7)
    words = [markers.new() for _ in range(500)]
    assert len(set(words)) == 500
    assert [again.new() for _ in range(500)] == words


def test_a_stream_is_read_event_by_event() -> None:
    reply = Reply()
    for payload in (
        '{"choices": [{"delta": {"role": "assistant"}, "finish_reason": null}]}',
        '{"choices": [{"delta": {"content": "ye"}, "finish_reason": null}]}',
        '{"choices": [{"delta": {"content": "s"}, "finish_reason": null}]}',
        '{"choices": [{"delta": {}, "finish_reason": "stop"}],'
        ' "timings": {"prompt_n": 3, "cache_n": 64, "predicted_n": 2}}',
        DONE,
    ):
        reply.take(payload)
    assert reply == Reply(["ye", "s"], ["stop", DONE], Counts(3, 64, 2))
    assert reply.whole
    reply.take('{"error": {"message": "it failed"}}')
    assert not reply.whole


HEALTH = Health("ok", 0, 0, 3 * MIB, 2 * MIB, MIB, 4 * MIB, 0, 0, 1)


@pytest.mark.parametrize(
    ("changes", "complaints"),
    [
        ({}, []),
        ({"host_cache_bytes": 3 * MIB, "cache_bytes": 4 * MIB}, []),
        (
            {"host_cache_bytes": 3 * MIB + 1, "cache_bytes": 4 * MIB + 1},
            [f"the cache holds {4 * MIB + 1} bytes, more than its cap of {4 * MIB}"],
        ),
        ({"cache_bytes": MIB}, [f"cache_bytes is {MIB}, its parts are {3 * MIB}"]),
        ({"host_cache_cap_bytes": 8 * MIB}, [f"the cap is {8 * MIB} bytes, not {4 * MIB}"]),
        ({"worker_restarts": 2}, ["the worker was restarted 2 times"]),
    ],
)
def test_what_is_wrong_with_a_health_report_is_found(changes: dict[str, int], complaints: list[str]) -> None:
    assert msgspec.structs.replace(HEALTH, **changes).faults(4 * MIB) == complaints


GOOD = Outcome(
    findings=(),
    counted=Counter(
        {
            "answers": 10,
            "answers with a word of their own": 6,
            "prompt tokens reused": 64,
            "left before the first word": 1,
            "left in mid-answer": 1,
        }
    ),
    memory=Memory(warm=300 * MIB, peak=300 * MIB + 16 * MIB + MARGIN, cap=16 * MIB),
    fullest=MIB,
)


def test_an_outcome_has_passed_only_when_it_could_have_failed() -> None:
    assert (GOOD.faults, GOOD.telling) == ([], [])
    silent = replace(GOOD, counted=GOOD.counted - Counter({"answers with a word of their own": 1}))
    assert silent.telling == ["only 5 of 10 answers have a word of their own"]
    for what in ("prompt tokens reused", "left before the first word", "left in mid-answer"):
        lacking = replace(GOOD, counted=Counter({**GOOD.counted, what: 0}))
        assert lacking.telling == [f"nothing was counted as: {what}"]


def test_memory_beyond_the_cap_and_the_margin_is_a_fault() -> None:
    fat = replace(GOOD, memory=replace(GOOD.memory, peak=GOOD.memory.peak + 1024))
    assert fat.faults == ["the worker had 348.0 MiB, allowed are 348.0 MiB"]
    assert "WRONG" in fat.text()
