"""SIGTERM: new requests are refused, those at hand finish while there is time, and the exit code is 0."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import signal
import socket
import time
from collections.abc import Iterator

import pytest

from tests.faults.box import Box, run
from tests.faults.routes import COUNT, MESSAGES, ROUTES, Ending, body, ending
from tests.faults.serve import Setup
from tests.faults.wire import exchange, request_bytes

SLOTS = 2


@pytest.fixture
def box() -> Iterator[Box]:
    with run(Setup(slots=SLOTS, context=8192)) as box:
        yield box


async def ask(box: Box, number: int, text: str) -> Ending:
    route, stream = ROUTES[number % 4], number % 8 < 4
    sent = request_bytes(route, body(route, text, stream, 2000))
    return ending(route, stream, await exchange(box.port, sent))


async def at_hand(box: Box, texts: list[str]) -> list[asyncio.Task[Ending]]:
    """Requests, once all of them run or wait."""
    tasks = [asyncio.create_task(ask(box, number, text)) for number, text in enumerate(texts)]
    await box.soon(lambda report: report["live_rows"] + report["waiting"] == len(texts))
    await box.soon(lambda report: report["live_rows"] == min(SLOTS, len(texts)))
    return tasks


def post(connection: http.client.HTTPConnection, route: str) -> tuple[int, http.client.HTTPMessage]:
    """The status and the headers of an answer; the connection stays open if the server leaves it so."""
    connection.request("POST", route, json.dumps(body(route, "x")), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    answer.read()
    return answer.status, answer.headers


def check_refusals(connection: http.client.HTTPConnection) -> None:
    """Every route tells that it is not the time, and when it will be."""
    for route in (*ROUTES, COUNT):
        status, headers = post(connection, route)
        anthropic = route.startswith(MESSAGES)
        assert status == (529 if anthropic else 503), route
        assert int(headers["retry-after"]) >= 1
        assert headers.get("x-should-retry") == ("true" if anthropic else None)


def test_running_and_waiting_requests_finish_and_new_ones_are_refused(box: Box) -> None:
    opened = http.client.HTTPConnection("127.0.0.1", box.port)
    assert post(opened, COUNT)[0] == 200

    async def drain() -> list[Ending]:
        tasks = await at_hand(box, [f"{number}{'[pause]' * 25}" for number in range(3 * SLOTS)])
        box.process.send_signal(signal.SIGTERM)
        await box.soon(lambda report: report["status"] != "ok")
        await asyncio.to_thread(check_refusals, opened)
        fresh = http.client.HTTPConnection("127.0.0.1", box.port)
        await asyncio.to_thread(check_refusals, fresh)
        fresh.close()
        return list(await asyncio.gather(*tasks))

    ends = asyncio.run(drain())
    opened.close()
    assert [(end.how, end.text[:1]) for end in ends] == [("answered", str(n)) for n in range(3 * SLOTS)]
    assert box.process.wait(5) == 0


def test_what_does_not_end_in_time_ends_with_an_error(box: Box) -> None:
    async def drain() -> tuple[list[Ending], float]:
        tasks = await at_hand(box, [f"{number}{'[pause]' * 400}" for number in range(2 * SLOTS + 4)])
        begun = time.monotonic()
        box.process.send_signal(signal.SIGTERM)
        return list(await asyncio.gather(*tasks)), time.monotonic() - begun

    ends, seconds = asyncio.run(drain())
    assert {end.how for end in ends[:4]} == {"event"}, "the streams had their 200"
    assert {(end.how, end.status) for end in ends[4:]} == {("status", 503), ("status", 529)}
    assert 9 < seconds < 13
    assert box.process.wait(5) == 0


def test_a_second_signal_ends_at_once(box: Box) -> None:
    worker = box.health()["worker_pid"]

    async def drain() -> tuple[list[Ending], float]:
        tasks = await at_hand(box, [f"{number}{'[pause]' * 400}" for number in range(2 * SLOTS)])
        box.process.send_signal(signal.SIGTERM)
        await box.soon(lambda report: report["status"] != "ok")
        begun = time.monotonic()
        box.process.send_signal(signal.SIGTERM)
        return list(await asyncio.gather(*tasks)), time.monotonic() - begun

    ends, seconds = asyncio.run(drain())
    assert all(end.how == "event" for end in ends)
    assert seconds < 1.5
    assert box.process.wait(3) == 0
    with pytest.raises(ProcessLookupError):
        signal_of_life(worker)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", box.port))


def signal_of_life(pid: int) -> None:
    """Raises ProcessLookupError when there is no such process."""
    os.kill(pid, 0)
