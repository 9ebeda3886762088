"""What the prompt cache saves, counted in prompt tokens: the server's own `timings`, on real models.

Every filling word is one token of the demo model, and tails are of one length, so that figures are exact.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from bench.prompts import fresh_text

from mashbox.config import ModelConfig
from mashbox.engine.event_stream import EventStream
from tests.holding import HELD_FROM, VARIABLE
from tests.model.conftest import DEMO, Box, run_box
from tests.model.engine_room import Room, Said, engine_room

GRID = 64
Message = dict[str, str]


@dataclass(frozen=True)
class Answer:
    """A chat answer and its counts."""

    text: str
    prompt_n: int
    cache_n: int
    predicted_n: int

    @property
    def total(self) -> int:
        """All tokens of the prompt."""
        return self.prompt_n + self.cache_n


def chat(box: Box, messages: list[Message], max_tokens: int = 2) -> Answer:
    """A whole answer; its usage must say the same as its timings."""
    response = box.http.post("/v1/chat/completions", json={"messages": messages, "max_tokens": max_tokens})
    assert response.status_code == 200, response.text
    body: dict[str, Any] = response.json()
    timings, usage = body["timings"], body["usage"]
    answer = Answer(
        body["choices"][0]["message"]["content"],
        timings["prompt_n"],
        timings["cache_n"],
        timings["predicted_n"],
    )
    assert usage["prompt_tokens"] == answer.total
    assert usage["prompt_tokens_details"] == {"cached_tokens": answer.cache_n}
    assert usage["completion_tokens"] == answer.predicted_n
    return answer


def conversation(system: str, words: int, name: str) -> list[Message]:
    """A system prompt, and a question of so many words of its own."""
    return [
        {"role": "system", "content": system},
        {"role": "user", "content": "Well, " + fresh_text(words, name)},
    ]


def session(name: str, number: int) -> list[Message]:
    """One of many sessions of that name: 300 words they share, and 30 of its own."""
    return conversation(fresh_text(300, name), 30, f"{name} {number}")


SHARED = 310
"""Tokens that the prompts of `session` share: the words, the template's around them, and "Well,"."""
TAIL = 36
"""Tokens of each one's own."""


@pytest.fixture(scope="module")
def wide() -> Iterator[Box]:
    with run_box(DEMO, "--ctx", "1024", "--slots", "8", "--cache-ram", "128") as box:
        yield box


@pytest.fixture(scope="module")
def narrow() -> Iterator[Box]:
    with run_box(DEMO, "--ctx", "1024", "--slots", "2", "--cache-ram", "128") as box:
        yield box


@pytest.fixture(scope="module")
def bare() -> Iterator[Box]:
    with run_box(DEMO, "--ctx", "1024", "--slots", "4", "--cache-ram", "0") as box:
        yield box


def together(box: Box, asked: list[list[Message]]) -> list[Answer]:
    """All at once."""
    with ThreadPoolExecutor(len(asked)) as pool:
        return list(pool.map(lambda messages: chat(box, messages), asked))


def check_computed_once(answers: list[Answer]) -> None:
    """The shared part was computed once, all tails each, and nothing else."""
    assert {answer.total for answer in answers} == {SHARED + TAIL}
    reused = sorted(answer.cache_n for answer in answers)
    assert reused == [0] + [SHARED] * (len(answers) - 1)


def test_sessions_that_start_together_compute_their_shared_prefix_once(wide: Box) -> None:
    check_computed_once(together(wide, [session("together", number) for number in range(8)]))


def test_sessions_one_after_another_compute_their_shared_prefix_once(wide: Box) -> None:
    check_computed_once([chat(wide, session("one by one", number)) for number in range(8)])


def test_more_sessions_than_slots_compute_their_shared_prefix_once(narrow: Box) -> None:
    check_computed_once(together(narrow, [session("crowd", number) for number in range(8)]))


def test_without_host_memory_slots_share_and_nothing_is_saved(bare: Box) -> None:
    check_computed_once(together(bare, [session("bare", number) for number in range(4)]))
    report = bare.health()
    names = ("cache_bytes", "host_cache_bytes", "snapshot_bytes", "host_cache_cap_bytes")
    assert [report[name] for name in names] == [0, 0, 0, 0]
    assert report["host_cache_evictions"] == 0


def go_on(messages: list[Message], answer: Answer, words: int, name: str) -> list[Message]:
    """The conversation after an answer and with another question."""
    return [
        *messages,
        {"role": "assistant", "content": answer.text},
        {"role": "user", "content": fresh_text(words, name)},
    ]


def new_tokens(before: Answer, after: Answer) -> int:
    """What a turn adds to the prompt and the answer before it."""
    return after.total - before.total - before.predicted_n


def test_a_second_turn_computes_its_new_tokens_only(narrow: Box) -> None:
    messages = session("turns", 0)
    answer = chat(narrow, messages, max_tokens=24)
    for turn in range(3):
        messages = go_on(messages, answer, 20, f"turn {turn}")
        following = chat(narrow, messages, max_tokens=24)
        assert following.prompt_n == new_tokens(answer, following) + 1
        answer = following


def test_a_conversation_displaced_by_eight_others_comes_back(narrow: Box) -> None:
    messages = session("displaced", 0)
    answer = chat(narrow, messages, max_tokens=8)
    for number in range(8):
        assert chat(narrow, conversation(fresh_text(60, f"other {number}"), 10, str(number))).cache_n == 0
    returned = chat(narrow, go_on(messages, answer, 20, "returned"))
    assert returned.prompt_n == new_tokens(answer, returned) + 1
    assert returned.cache_n >= SHARED
    assert narrow.health()["host_cache_bytes"] > 0


# --- requests that are given up ----------------------------------------------------------------


LONG = 900
"""Words of a prompt; its prefill is held in the middle."""


@asynccontextmanager
async def held_room(model: Path, hold: Path) -> AsyncIterator[Room]:
    """A worker that stops in the middle of a long prompt while `hold` exists."""
    config = ModelConfig(str(model), context=2048, slots=2, threads=1, prefill_rows=GRID, cache_ram_mib=128)
    os.environ[VARIABLE] = str(hold)
    try:
        async with engine_room(config, backend="tests.holding:Holding") as room:
            yield room
    finally:
        del os.environ[VARIABLE]


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not true():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def start_and_stop(room: Room, hold: Path, prompt: str) -> EventStream:
    """A request whose prefill is held in the middle."""
    hold.touch()  # noqa: ASYNC240
    stream = await room.open(prompt, 8)
    await until(lambda: room.client.status.kv_tokens == HELD_FROM)
    return stream


def test_what_an_aborted_request_has_computed_is_used_again(demo_file: Path, tmp_path: Path) -> None:
    hold = tmp_path / "hold"

    async def run() -> Said:
        async with held_room(demo_file, hold) as room:
            stream = await start_and_stop(room, hold, fresh_text(LONG, "given up"))
            stream.close()
            hold.unlink()
            return await room.ask(fresh_text(LONG, "given up"))

    # The call that was held is done in the end.
    assert HELD_FROM + GRID <= asyncio.run(run()).usage.cached_tokens <= LONG // GRID * GRID


def test_when_the_leader_is_aborted_the_next_one_goes_on_from_there(demo_file: Path, tmp_path: Path) -> None:
    hold, shared = tmp_path / "hold", fresh_text(LONG, "led")

    async def run() -> list[Said]:
        async with held_room(demo_file, hold) as room:
            leader = await start_and_stop(room, hold, shared + " and the first one" * 200)
            asked = [f"{shared} and {name}" for name in ("second", "third", "fourth")]
            others = asyncio.create_task(room.ask_together(asked))
            await until(lambda: room.client.status.running + room.client.status.waiting == 4)
            leader.close()
            hold.unlink()
            return await others

    full = LONG + 1  # the next word is theirs, too
    said = asyncio.run(run())
    # Nobody computes again what the leader has; at most one of them goes on from there.
    assert sorted(answer.usage.cached_tokens for answer in said)[1:] == [full, full]
    assert min(answer.usage.cached_tokens for answer in said) >= HELD_FROM + GRID


# --- what the routes say -------------------------------------------------------------------------


def test_all_routes_count_alike(narrow: Box) -> None:
    messages = [{"role": "user", "content": "Well, " + fresh_text(200, "routes")}]
    cold = chat(narrow, messages)
    assert cold.cache_n == 0
    cached = cold.total - 1
    assert chat(narrow, messages).cache_n == cached
    body = {"messages": messages, "max_tokens": 2}
    usage = narrow.http.post("/v1/messages", json=body).json()["usage"]
    assert usage["cache_read_input_tokens"] == cached
    assert usage["input_tokens"] + usage["cache_read_input_tokens"] == cold.total
    assert usage["cache_creation_input_tokens"] == 0
    asked = {"input": messages, "max_output_tokens": 2}
    usage = narrow.http.post("/v1/responses", json=asked).json()["usage"]
    assert usage["input_tokens"] == cold.total
    assert usage["input_tokens_details"]["cached_tokens"] == cached
    plain = fresh_text(200, "plain")
    for reused in (0, 199):
        usage = narrow.complete(plain, max_tokens=2)["usage"]
        assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (200, 2, 202)
        assert usage["prompt_tokens_details"] == {"cached_tokens": reused}


def test_streams_count_like_whole_answers(narrow: Box) -> None:
    messages = [{"role": "user", "content": "Well, " + fresh_text(200, "streams")}]
    whole = chat(narrow, messages)
    cached = whole.total - 1
    options = {"stream": True, "stream_options": {"include_usage": True}}
    chunks = stream(narrow, "/v1/chat/completions", {"messages": messages, "max_tokens": 2, **options})
    last = chunks[-1]
    assert (last["timings"]["prompt_n"], last["timings"]["cache_n"]) == (whole.total - cached, cached)
    assert last["usage"]["prompt_tokens_details"] == {"cached_tokens": cached}
    events = stream(narrow, "/v1/messages", {"messages": messages, "max_tokens": 2, "stream": True})
    usage = events[0]["message"]["usage"]
    assert (usage["input_tokens"], usage["cache_read_input_tokens"]) == (whole.total - cached, cached)


def stream(box: Box, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    """The events of a streamed answer, but for its end mark."""
    with box.http.stream("POST", path, json=body) as response:
        lines = [line.removeprefix("data: ") for line in response.iter_lines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]
