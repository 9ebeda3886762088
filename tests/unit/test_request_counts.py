"""What the engine's client tells its observer, and the numbers that become of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from starlette.requests import Request

from mashbox.api.distribution import Distribution
from mashbox.api.health import Health, Identity, Kernel, RoutedExperts, routed_experts
from mashbox.api.metrics import Metrics
from mashbox.api.models import Models
from mashbox.api.request_counts import RequestCounts
from mashbox.api.settings import ServeConfig
from mashbox.config import ModelConfig, WorkerConfig
from mashbox.engine.client import EngineClient
from mashbox.engine.event_stream import EventStream
from mashbox.engine.supervisor import Supervisor
from mashbox.engine.types import (
    Accepted,
    CacheReport,
    Failed,
    Finished,
    FinishReason,
    Invalid,
    Refused,
    RequestEvent,
    Sampling,
    Segment,
    Started,
    Submit,
    TextDelta,
    Usage,
)
from mashbox.errors import RequestError
from tests.scripted import ScriptedBackend

MODEL = ModelConfig("m", context=1000, slots=2, threads=1)
USAGE = Usage(100, 64, 5, queue_ms=10.0, prompt_ms=20.0, predicted_ms=400.0)
FACTS = ScriptedBackend(MODEL, lambda _: None).facts
END = Finished("a", FinishReason.STOP, USAGE)
TAKEN = Accepted("a", 100)
BEGUN: list[RequestEvent] = [TAKEN, Started("a", 64), TextDelta("a", "x"), TextDelta("a", "y")]


def ready(**status: Any) -> tuple[Supervisor, EngineClient, RequestCounts]:
    """A client of a worker that is ready and says nothing by itself."""
    supervisor, counts = Supervisor(WorkerConfig(MODEL)), RequestCounts()
    supervisor.status = replace(supervisor.status, state="ready", facts=FACTS, **status)
    return supervisor, EngineClient(supervisor, counts), counts


def give_up(client: EngineClient, stream: EventStream) -> None:
    stream.close()
    stream.close()


def abort(client: EngineClient, stream: EventStream) -> None:
    client.abort()
    client.lost()
    stream.close()


def lose(client: EngineClient, stream: EventStream) -> None:
    client.lost()
    stream.close()


def late(client: EngineClient, stream: EventStream) -> None:
    """More comes of a request that has ended, and its reader closes it."""
    client.receive([END, Failed("a", "x")])
    client.lost()
    stream.close()


ENDINGS: list[tuple[list[RequestEvent], Callable[[EngineClient, EventStream], None], dict[str, int]]] = [
    ([*BEGUN, END], late, {"stop": 1}),
    ([*BEGUN, Finished("a", FinishReason.STOP_STRING, USAGE, "x")], late, {"stop": 1}),
    ([*BEGUN, Finished("a", FinishReason.LENGTH, USAGE)], late, {"length": 1}),
    ([*BEGUN, Failed("a", "no")], late, {"error": 1}),
    ([TAKEN, Failed("a", "no")], late, {"error": 1}),
    (BEGUN, give_up, {"abort": 1}),
    ([TAKEN], give_up, {"abort": 1}),
    (BEGUN, abort, {"error": 1}),
    (BEGUN, lose, {"error": 1}),
]


@pytest.mark.parametrize(("events", "end", "ended"), ENDINGS)
def test_a_request_ends_once(
    events: list[RequestEvent], end: Callable[[EngineClient, EventStream], None], ended: dict[str, int]
) -> None:
    async def test() -> None:
        _, client, counts = ready()
        asyncio.get_running_loop().call_soon(client.receive, events)
        end(client, await client.submit(Submit("a", (Segment("x", False),), Sampling())))
        assert {name: count for name, count in counts.ended.items() if count} == ended
        begun = len(events) > 2
        assert (counts.prompt_tokens, counts.cached_tokens) == ((100, 64) if begun else (0, 0))
        assert counts.first_text_s.buckets()[-1] == ("+Inf", int(begun))

    asyncio.run(test())


@pytest.mark.parametrize("refusal", [Refused("a", 2000, 1000), Refused("a", 0, 1000), Invalid("a", "no")])
def test_a_refused_request_is_not_told(refusal: RequestEvent) -> None:
    async def test() -> None:
        _, client, counts = ready()
        asyncio.get_running_loop().call_soon(client.receive, [refusal])
        with pytest.raises(RequestError):
            await client.submit(Submit("a", (Segment("x", False),), Sampling()))
        assert not any(counts.ended.values())

    asyncio.run(test())


def test_leaving_before_the_worker_has_answered() -> None:
    async def test() -> None:
        _, client, counts = ready()
        submitting = asyncio.create_task(client.submit(Submit("a", (Segment("x", False),), Sampling())))
        await asyncio.sleep(0)
        submitting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await submitting
        assert counts.ended["abort"] == 1

    asyncio.run(test())


def test_times_run_from_the_arrival() -> None:
    async def test() -> None:
        _, client, counts = ready()
        loop = asyncio.get_running_loop()
        loop.call_soon(client.receive, [*BEGUN, END])
        await client.submit(Submit("a", (Segment("x", False),), Sampling()), begun=loop.time() - 7)
        assert 7 < counts.first_text_s.sum <= counts.whole_s.sum < 8

    asyncio.run(test())


def test_a_finished_request_in_numbers() -> None:
    counts = RequestCounts()
    counts.finished(FinishReason.STOP, USAGE, 0.5)
    sums = {name: value.sum for name, value in vars(counts).items() if isinstance(value, Distribution)}
    assert sums == {
        "first_text_s": 0.0,
        "whole_s": 0.5,
        "queue_s": 0.01,
        "prefill_s": 0.02,
        "decode_s": 0.4,
        "run_s": 0.42,
        "token_s": 0.1,
        "gap_s": 0.4,
        "prompt_length": 100,
        "answer_length": 5,
    }
    assert counts.token_s.buckets()[-1] == ("+Inf", 1)
    assert counts.gap_s.buckets()[-1] == ("+Inf", 4)


def test_distribution() -> None:
    values = Distribution((1, 2.5, 10))
    assert values.buckets() == [("1.0", 0), ("2.5", 0), ("10.0", 0), ("+Inf", 0)]
    for value, times in ((1, 1), (1.1, 2), (10.5, 1), (0, 1)):
        values.observe(value, times)
    assert values.buckets() == [("1.0", 2), ("2.5", 4), ("10.0", 4), ("+Inf", 5)]
    assert values.sum == pytest.approx(13.7)


CONFIG = ServeConfig("org/m", "m.gguf", 1000, 2, cache_ram_mib=3)


def test_the_cache_in_health_and_metrics() -> None:
    report = CacheReport(states=4, host_bytes=700, snapshot_bytes=50, evictions=6, dropped=7)
    _, client, counts = ready(cache=report, kv_tokens=500, restarts=2)
    health = Health(client, CONFIG, Identity).report()
    told = (health.cache_bytes, health.host_cache_bytes, health.snapshot_bytes, health.host_cache_evictions)
    assert told == (750, 700, 50, 6)
    assert health.host_cache_cap_bytes == 3 * 2**20
    card = Models(client, CONFIG).card()
    assert (card.prefix_cache, card.cache_ram_mib) == (True, 3)
    request = Request({"type": "http"})
    text = bytes(asyncio.run(Metrics(client, CONFIG, counts).handle(request)).body).decode()
    for name, value in {
        "kv_cache_usage_perc": "0.25",
        "host_cache_bytes": "700.0",
        "host_cache_cap_bytes": "3.145728e+06",
        "host_cache_states": "4.0",
        "snapshot_bytes": "50.0",
        "host_cache_evictions_total": "6.0",
        "host_cache_dropped_total": "7.0",
        "worker_restarts_total": "2.0",
    }.items():
        assert f'\nmashbox:{name}{{model_name="org/m"}} {value}\n' in text


def test_two_servers_in_one_process_do_not_share_numbers() -> None:
    _, client, counts = ready()
    others = RequestCounts()
    counts.failed()
    request = Request({"type": "http"})
    pages = [
        bytes(asyncio.run(Metrics(client, CONFIG, each).handle(request)).body).decode()
        for each in (counts, others)
    ]
    line = 'mashbox:request_success_total{{finished_reason="error",model_name="org/m"}} {}\n'
    assert [line.format(value) in page for page, value in zip(pages, ("1.0", "0.0"), strict=True)] == [
        True
    ] * 2


def test_before_the_model_is_loaded() -> None:
    client = EngineClient(Supervisor(WorkerConfig(MODEL)))
    report = Health(client, CONFIG, Identity).report()
    assert (report.compiles_after_ready, report.routed_experts) == (None, None)


def test_routed_experts() -> None:
    assert routed_experts(None) is None
    assert routed_experts(FACTS) is None
    facts = msgspec.structs.replace(
        FACTS, experts=8, expert_layers=5, build="llama-cpp-python 0.3.36; CPU : AVX2 = 1 | X = 1 |"
    )
    kernel = Kernel("ggml_mul_mat_id", "0.3.36", "llama-cpp-python")
    assert routed_experts(facts) == RoutedExperts("kernel", kernel, {"kernel": 15, "exact": 0}, None)
    unnamed = routed_experts(msgspec.structs.replace(facts, build="none"))
    assert unnamed is not None
    assert unnamed.kernel is None
