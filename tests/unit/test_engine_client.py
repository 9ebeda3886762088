"""engine/client.py: places, and what happens to them when a worker or a run fails. No process here."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from mashbox.api.request_counts import RequestCounts
from mashbox.config import ModelConfig, WorkerConfig
from mashbox.engine import client as module
from mashbox.engine import ipc
from mashbox.engine.client import EngineClient
from mashbox.engine.event_stream import EventStream
from mashbox.engine.supervisor import Supervisor
from mashbox.engine.types import (
    Accepted,
    Cancel,
    Command,
    Count,
    Counted,
    Failed,
    Finished,
    FinishReason,
    RequestEvent,
    Sampling,
    Segment,
    Started,
    Submit,
    TextDelta,
    Usage,
)
from mashbox.errors import EngineError, EngineFault, NotReadyError
from tests.scripted import ScriptedBackend

MODEL = ModelConfig("m", context=1000, slots=2, threads=1)
FACTS = ScriptedBackend(MODEL, lambda _: None).facts
USAGE = Usage(100, 64, 5, queue_ms=10.0, prompt_ms=20.0, predicted_ms=400.0)
HEADER_BYTES = len(ipc.encode([])) - 1
COMMANDS = msgspec.msgpack.Decoder(list[Command])


class Line(Supervisor):
    """A supervisor without a process: it keeps what is sent, and says what it is told to."""

    def __init__(self) -> None:
        super().__init__(WorkerConfig(MODEL))
        self.sent: list[str] = []
        self.status = replace(self.status, state="ready", facts=FACTS)

    def send_frame(self, frame: bytes) -> None:
        for command in COMMANDS.decode(frame[HEADER_BYTES:]):
            if isinstance(command, Submit | Count | Cancel):
                self.sent.append(f"{type(command).__name__.lower()} {command.id}")

    def lose(self) -> None:
        """The worker dies."""
        self.sent.clear()
        self.status = replace(self.status, state="restarting")
        assert self._listener is not None
        self._listener.lost()

    def come_back(self) -> None:
        """Another one is ready."""
        self.status = replace(self.status, state="ready")
        assert self._listener is not None
        self._listener.ready()


class Desk:
    """A client of such a line, and requests by name."""

    def __init__(self) -> None:
        self.line = Line()
        self.counts = RequestCounts()
        self.client = EngineClient(self.line, self.counts)

    def ended(self) -> dict[str, int]:
        return {name: count for name, count in self.counts.ended.items() if count}

    async def take(self, name: str) -> EventStream:
        """A request that waits for a slot."""
        submit = Submit(name, (Segment("x", False),), Sampling())
        taken: list[RequestEvent] = [Accepted(name, 100)]
        asyncio.get_running_loop().call_soon(self.client.receive, taken)
        return await self.client.submit(submit)

    def start(self, *names: str) -> None:
        self.client.receive([Started(name, 64) for name in names])

    def finish(self, name: str) -> None:
        self.client.receive([Finished(name, FinishReason.STOP, USAGE)])


def run(test: Coroutine[Any, Any, None]) -> None:
    async def main() -> None:
        async with asyncio.timeout(5):
            await test

    asyncio.run(main())


async def fault_of(stream: EventStream) -> EngineFault:
    """Read a stream up to its fault."""
    with pytest.raises(EngineFault) as caught:
        async for _ in stream:
            pass
    return caught.value


def test_what_only_waited_goes_to_the_next_worker_as_if_nothing_had_happened() -> None:
    async def test() -> None:
        desk = Desk()
        stream = await desk.take("a")
        for _ in range(5):
            desk.line.lose()
            assert desk.line.sent == []
            desk.line.come_back()
            assert desk.line.sent == ["submit a"]
            desk.client.receive([Accepted("a", 100)])
        desk.start("a")
        desk.finish("a")
        assert [type(event) for event in [event async for event in stream]] == [Started, Finished]
        assert desk.ended() == {"stop": 1}

    run(test())


def test_what_ran_runs_again_once_when_its_consumer_wants_it() -> None:
    async def test() -> None:
        desk = Desk()
        stream = await desk.take("a")
        desk.start("a")
        desk.line.lose()
        desk.line.come_back()
        await fault_of(stream)
        assert desk.line.sent == []
        stream.again()
        assert desk.line.sent == ["submit a"]
        desk.client.receive([Accepted("a", 100), Started("a", 0), TextDelta("a", "hi")])
        assert isinstance(await anext(stream), Started)
        desk.line.lose()
        await fault_of(stream)
        stream.again()
        with pytest.raises(EngineError) as caught:
            await anext(stream)
        assert not isinstance(caught.value, EngineFault)
        stream.close()
        desk.line.come_back()
        assert (desk.line.sent, desk.client.at_hand, desk.ended()) == ([], 0, {"error": 1})
        assert (desk.counts.prompt_tokens, desk.counts.cached_tokens) == (100, 64)

    run(test())


def test_what_nobody_wants_again_has_failed() -> None:
    async def test() -> None:
        desk = Desk()
        stream = await desk.take("a")
        desk.start("a")
        desk.client.receive([Failed("a", "no")])
        await fault_of(stream)
        stream.close()
        assert (desk.client.at_hand, desk.ended()) == (0, {"error": 1})
        assert desk.line.sent == ["submit a"]

    run(test())


def test_a_failed_run_is_sent_again_to_the_same_worker() -> None:
    async def test() -> None:
        desk = Desk()
        stream = await desk.take("a")
        desk.start("a")
        desk.client.receive([Failed("a", "no")])
        await fault_of(stream)
        stream.again()
        assert desk.line.sent == ["submit a", "submit a"]
        desk.client.receive([Accepted("a", 100), Started("a", 0)])
        desk.finish("a")
        assert [type(event) async for event in stream] == [Started, Finished]
        assert desk.ended() == {"stop": 1}

    run(test())


def test_suspects_run_one_after_another_until_their_first_text() -> None:
    async def test() -> None:
        desk = Desk()
        names = ["a", "b", "c"]
        streams = [await desk.take(name) for name in names]
        desk.start(*names)
        desk.line.lose()
        for stream in streams:
            await fault_of(stream)
            stream.again()
        desk.line.come_back()
        assert desk.line.sent == ["submit a"]
        desk.client.receive([Accepted("a", 100), Started("a", 0)])
        assert desk.line.sent == ["submit a"]
        desk.client.receive([TextDelta("a", "hi")])
        assert desk.line.sent == ["submit a", "submit b"]
        streams[1].close()
        assert desk.line.sent[2:] == ["cancel b", "submit c"]
        desk.client.receive([Accepted("c", 100), Started("c", 0)])
        desk.line.lose()  # c was alone under suspicion; a has shown that it is harmless
        for stream in (streams[0], streams[2]):
            await fault_of(stream)
            stream.again()
            with pytest.raises(EngineError):
                await anext(stream)
        assert desk.client.at_hand == 0

    run(test())


def test_a_suspect_with_text_runs_alone_until_it_has_come_further() -> None:
    """One that kills late: its neighbour, whose first run it spoilt, must not be beside it a second time."""

    async def test() -> None:
        desk = Desk()
        killer, other = await desk.take("killer"), await desk.take("other")
        desk.start("killer", "other")
        desk.client.receive([TextDelta("killer", "a"), TextDelta("killer", "b"), TextDelta("other", "x")])
        desk.line.lose()
        for stream in (killer, other):
            await fault_of(stream)
            stream.again()
        desk.line.come_back()
        desk.client.receive([Accepted("killer", 100)])
        desk.start("killer")
        desk.client.receive([TextDelta("killer", "a"), TextDelta("killer", "b")])
        assert desk.line.sent == ["submit killer"]
        desk.line.lose()
        await fault_of(killer)
        killer.again()
        with pytest.raises(EngineError, match="twice"):
            await fault_of(killer)
        desk.line.come_back()
        assert desk.line.sent == ["submit other"]
        desk.client.receive([Accepted("other", 100)])
        desk.start("other")
        desk.finish("other")
        assert desk.ended() == {"error": 1, "stop": 1}

    run(test())


def test_a_request_that_kills_the_worker_while_it_is_prepared_is_not_sent_for_ever() -> None:
    async def test() -> None:
        desk = Desk()
        submit = Submit("a", (Segment("x", False),), Sampling())
        waiting = asyncio.create_task(desk.client.submit(submit))
        for _ in range(2):
            await asyncio.sleep(0)
            assert desk.line.sent == ["submit a"]
            desk.line.lose()
            await asyncio.sleep(0)
            desk.line.come_back()
        with pytest.raises(EngineError):
            await waiting
        assert (desk.line.sent, desk.client.at_hand) == ([], 0)

    run(test())


def test_a_request_that_comes_while_another_is_rendered_keeps_its_place() -> None:
    async def test() -> None:
        desk = Desk()
        stream = desk.client.enter("t")
        assert (desk.client.status.waiting, desk.client.at_hand) == (1, 1)
        desk.line.lose()
        with pytest.raises(NotReadyError):
            desk.client.enter("t")
        running = asyncio.create_task(stream.run(Submit(stream.id, (Segment("x", False),), Sampling())))
        await asyncio.sleep(0)
        assert desk.line.sent == []
        desk.line.come_back()
        assert desk.line.sent == [f"submit {stream.id}"]
        desk.client.receive([Accepted(stream.id, 5)])
        await running
        stream.close()
        assert desk.ended() == {"abort": 1}

    run(test())


def test_the_end_of_the_server_ends_all() -> None:
    async def test() -> None:
        desk = Desk()
        streams = [await desk.take("a"), await desk.take("b"), desk.client.enter()]
        desk.start("a")
        desk.line.lose()
        desk.client.abort()
        await fault_of(streams[0])
        streams[0].again()
        for stream in streams:
            with pytest.raises(NotReadyError):
                await anext(stream)
            stream.close()
        desk.line.come_back()
        assert (desk.line.sent, desk.client.at_hand, desk.ended()) == ([], 0, {"error": 2})

    run(test())


def test_a_count_is_sent_again_and_waits_for_no_slot() -> None:
    async def test() -> None:
        desk = Desk()
        stream = desk.client.enter(is_answer=False)
        counting = asyncio.create_task(stream.run(Count(stream.id, (Segment("x", False),))))
        await asyncio.sleep(0)
        assert (desk.client.status.waiting, desk.client.at_hand) == (0, 1)
        desk.line.lose()
        await asyncio.sleep(0)
        desk.line.come_back()
        assert desk.line.sent == [f"count {stream.id}"]
        desk.client.receive([Counted(stream.id, 0)])
        await counting
        assert (stream.prompt_tokens, desk.client.at_hand, desk.ended()) == (0, 0, {})
        stream.close()

    run(test())


def test_what_is_left_of_the_grace_is_told_while_draining(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    client = Desk().client
    client.drain()
    assert client.retry_after == module.GRACE_S
    now += module.GRACE_S - 3
    assert client.retry_after == 3
    now += 30
    assert client.retry_after == 1
