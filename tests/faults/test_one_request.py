"""A request that fails, or that ends the worker, harms no other one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.box import Box, run
from tests.faults.failing import EARLY, LATE
from tests.faults.routes import COMPLETIONS, ROUTES, Ending, body, ending
from tests.faults.serve import Setup
from tests.faults.wire import exchange, request_bytes

TEXT = "Write down every number and the word for it: one, two, three,"


@pytest.fixture(scope="module")
def failing(demo_file: Path) -> Iterator[Box]:
    with run(Setup(str(demo_file), "tests.faults.failing:Failing", context=512)) as box:
        yield box


@pytest.fixture
def scripted() -> Iterator[Box]:
    with run(Setup()) as box:
        yield box


async def ask(box: Box, number: int, text: str, stream: bool, tokens: int = 200) -> Ending:
    route = ROUTES[number % 4]
    sent = request_bytes(route, body(route, text, stream, tokens))
    return ending(route, stream, await exchange(box.port, sent))


async def ask_eight(box: Box, bad: str, stream: bool, texts: list[str]) -> list[Ending]:
    """The bad one first, then seven others, mixed; all at once."""
    async with asyncio.timeout(60):
        first = asyncio.create_task(exchange_bad(box, bad, stream))
        others = [ask(box, number, text, number % 2 == 0, 24) for number, text in enumerate(texts)]
        return list(await asyncio.gather(first, *others))


async def exchange_bad(box: Box, text: str, stream: bool) -> Ending:
    sent = request_bytes(COMPLETIONS, body(COMPLETIONS, text, stream, 24))
    return ending(COMPLETIONS, stream, await exchange(box.port, sent))


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("word", [EARLY, LATE])
def test_an_exception_in_one_request_beside_seven(failing: Box, word: str, stream: bool) -> None:
    failing.idle()
    before = failing.ended()["error"]
    bad, *others = asyncio.run(
        ask_eight(failing, TEXT + word, stream, [f"{number}: {TEXT}" for number in range(7)])
    )
    # The first word of an answer may have gone out before the third token fails.
    assert (bad.how, bad.status) in ([("event", 200)] if stream else [("status", 500)])
    assert [end.how for end in others] == ["answered"] * 7
    assert failing.idle()["worker_restarts"] == 0
    assert failing.ended()["error"] == before + 1


@pytest.mark.timeout(120)
@pytest.mark.parametrize("bad", ["[die]", "[pause][pause]abcdef[die]"])
def test_a_request_that_kills_the_worker_twice_beside_seven(scripted: Box, bad: str) -> None:
    """Whole answers all: their clients have seen nothing, so each can be made good."""
    texts = [f"{number} {'[pause]' * 6}fine" for number in range(7)]

    async def eight() -> list[Ending]:
        killer = asyncio.create_task(exchange_bad(scripted, "[pause]" * 6 + bad, False))
        others = [ask(scripted, number, text, False) for number, text in enumerate(texts)]
        async with asyncio.timeout(60):
            return list(await asyncio.gather(killer, *others))

    killed, *others = asyncio.run(eight())
    assert killed.status == 500
    assert [end.how for end in others] == ["answered"] * 7
    assert [end.text.rstrip() for end in others] == [text.replace("[pause]", "") for text in texts]
    report = scripted.idle()
    assert report["worker_restarts"] == 2
    assert scripted.ended() == {"stop": 7, "length": 0, "abort": 0, "error": 1}


@pytest.mark.timeout(120)
def test_streams_beside_a_killer_end_once(scripted: Box) -> None:
    """Those that had sent output end with their route's error; the others are made good."""
    texts = [f"{'[pause]' * (number % 3)}{number} {'[pause]' * 20}fine" for number in range(8)]

    async def nine() -> list[Ending]:
        others = [asyncio.create_task(ask(scripted, number, text, True)) for number, text in enumerate(texts)]
        await scripted.soon(lambda report: report["live_rows"] >= 7)
        killer = await exchange_bad(scripted, "[die]", False)
        return [killer, *await asyncio.gather(*others)]

    killer, *others = asyncio.run(nine())
    assert killer.status == 500
    assert {end.how for end in others} <= {"answered", "event"}
    assert scripted.idle()["worker_restarts"] == 2
    ended = scripted.ended()
    assert ended["error"] == 1 + sum(end.how == "event" for end in others)
    assert sum(ended.values()) == 9
