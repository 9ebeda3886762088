"""GET /metrics on a real port: what is counted, under which names, and what is not told."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.api.conftest import Server, run_server
from tests.api.serve import CONTEXT, MODEL_ID, SLOTS
from tests.api.test_connections import LONG, request

DASHBOARD = Path(__file__).parents[2] / "docs" / "grafana.json"

VLLM = {
    "num_requests_running": "gauge",
    "num_requests_waiting": "gauge",
    "kv_cache_usage_perc": "gauge",
    "cache_config_info": "gauge",
    "num_preemptions": "counter",
    "prompt_tokens": "counter",
    "generation_tokens": "counter",
    "request_success": "counter",
    "prefix_cache_queries": "counter",
    "prefix_cache_hits": "counter",
    "time_to_first_token_seconds": "histogram",
    "inter_token_latency_seconds": "histogram",
    "request_time_per_output_token_seconds": "histogram",
    "e2e_request_latency_seconds": "histogram",
    "request_queue_time_seconds": "histogram",
    "request_prefill_time_seconds": "histogram",
    "request_decode_time_seconds": "histogram",
    "request_inference_time_seconds": "histogram",
    "request_prompt_tokens": "histogram",
    "request_generation_tokens": "histogram",
    "request_max_num_generation_tokens": "histogram",
}
"""vLLM's present names, those of its own dashboards among them. A counter's series ends in _total."""

OWN = {
    "worker_restarts": "counter",
    "compiles_after_ready": "counter",
    "host_cache_bytes": "gauge",
    "host_cache_cap_bytes": "gauge",
    "host_cache_states": "gauge",
    "snapshot_bytes": "gauge",
    "host_cache_evictions": "counter",
    "host_cache_dropped": "counter",
    "error_answers": "counter",
}

PER_ANSWER = [
    *("e2e_request_latency_seconds", "request_queue_time_seconds", "request_prefill_time_seconds"),
    *("request_decode_time_seconds", "request_inference_time_seconds", "request_prompt_tokens"),
    *("request_generation_tokens", "request_max_num_generation_tokens"),
]
ROUNDED = 2e-6
"""Seconds by which times may differ from those of an answer, which are rounded."""
ENDS = ("stop", "length", "abort", "error")


class Page:
    """One answer of /metrics, parsed."""

    def __init__(self, text: str) -> None:
        self.families = list(text_string_to_metric_families(text))
        self.samples = [sample for family in self.families for sample in family.samples]

    def value(self, name: str, **labels: str) -> float:
        """The one sample of that name with those labels."""
        wanted = labels | {"model_name": MODEL_ID}
        (value,) = (
            sample.value
            for sample in self.samples
            if sample.name == f"mashbox:{name}" and sample.labels == wanted
        )
        return value

    def ends(self) -> dict[str, float]:
        return {end: self.value("request_success_total", finished_reason=end) for end in ENDS}


def page(server: Server) -> Page:
    return Page(server.http.get("/metrics").text)


class Rise:
    """How much everything has risen since this was made."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._before = page(server)

    def ends(self) -> dict[str, float]:
        before, now = self._before.ends(), page(self._server).ends()
        return {end: now[end] - before[end] for end in ENDS if now[end] != before[end]}

    def of(self, name: str, **labels: str) -> float:
        return page(self._server).value(name, **labels) - self._before.value(name, **labels)


ROUTES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "hello"}]},
    "/v1/completions": {"prompt": "hello"},
    "/v1/messages": {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 50},
    "/v1/responses": {"input": "hello"},
}


def wait_idle(server: Server) -> None:
    server.until(lambda report: (report["live_rows"], report["waiting"]) == (0, 0))


@contextmanager
def full_server(server: Server, waiting: int) -> Iterator[None]:
    """Every slot is taken by an endless answer and so many more wait; all leave at the end."""
    clients = []
    for _ in range(SLOTS + waiting):
        client = socket.create_connection(("127.0.0.1", server.port))
        client.sendall(request("/v1/completions", {"prompt": LONG, "stream": True}))
        clients.append(client)
    server.until(lambda report: (report["live_rows"], report["waiting"]) == (SLOTS, waiting))
    yield
    for client in clients:
        client.close()
    wait_idle(server)


def test_every_name_begins_with_ours_and_goes_on_with_vllms(server: Server) -> None:
    answer = server.http.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    families = {family.name: family.type for family in Page(answer.text).families}
    assert families == {f"mashbox:{name}": kind for name, kind in (VLLM | OWN).items()}
    assert all(family.documentation.endswith(".") for family in Page(answer.text).families)
    assert "_created" not in answer.text


def test_head_and_other_methods(server: Server) -> None:
    answer = server.http.head("/metrics")
    assert (answer.status_code, answer.content) == (200, b"")
    assert server.http.post("/metrics").status_code == 405


def test_while_the_model_loads() -> None:
    with run_server("slow") as server:
        server.until(lambda report: "worker_pid" in report)
        assert server.http.head("/metrics").status_code == 503
        rise = Rise(server)
        assert server.complete("x").status_code == 503
        assert server.chat("x").status_code == 503
        assert server.http.post("/v1/messages", json=ROUTES["/v1/messages"]).status_code == 529
        assert rise.of("error_answers_total", status="503") == 2
        assert rise.of("error_answers_total", status="529") == 1
        assert rise.ends() == {}


def test_the_layout_of_the_slots(server: Server) -> None:
    layout = {"block_size": str(CONTEXT), "num_blocks": str(SLOTS), "num_gpu_blocks": str(SLOTS)}
    assert page(server).value("cache_config_info", **layout) == 1


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("stream", [False, True])
def test_answers_are_counted_once(server: Server, route: str, stream: bool) -> None:
    rise = Rise(server)
    for _ in range(3):
        assert server.http.post(route, json=ROUTES[route] | {"stream": stream}).status_code == 200
    assert rise.ends() == {"stop": 3}
    for name in (*PER_ANSWER, "time_to_first_token_seconds", "request_time_per_output_token_seconds"):
        assert rise.of(f"{name}_count") == 3, name
    assert rise.of("generation_tokens_total") == rise.of("request_generation_tokens_sum") == 3 * 6
    assert rise.of("inter_token_latency_seconds_count") == 3 * 5
    assert rise.of("inter_token_latency_seconds_sum") == pytest.approx(
        rise.of("request_decode_time_seconds_sum")
    )


def test_reasons(server: Server) -> None:
    rise = Rise(server)
    assert server.complete("hello", max_tokens=2).status_code == 200
    assert server.complete("hello", stop="l").status_code == 200
    assert server.complete("hello").status_code == 200
    assert rise.ends() == {"length": 1, "stop": 2}


def test_tokens_are_those_of_the_usage(server: Server) -> None:
    rise = Rise(server)
    text = "a sentence that begins like another one, and goes on for more than one step of the grid. "
    usages = [server.complete(text + end, max_tokens=3).json()["usage"] for end in ("", "", "x")]
    cached = server.chat(text, max_tokens=3).json(), server.chat(text, max_tokens=3).json()
    usages += [answer["usage"] for answer in cached]
    prompts = sum(usage["prompt_tokens"] for usage in usages)
    assert rise.of("prompt_tokens_total") == rise.of("prefix_cache_queries_total") == prompts
    assert rise.of("request_prompt_tokens_sum") == prompts
    assert rise.of("generation_tokens_total") == sum(usage["completion_tokens"] for usage in usages)
    assert cached[1]["usage"]["prompt_tokens_details"]["cached_tokens"] >= 64
    hits = rise.of("prefix_cache_hits_total")
    assert (
        sum(answer["usage"]["prompt_tokens_details"]["cached_tokens"] for answer in cached) <= hits < prompts
    )


def test_times(server: Server) -> None:
    rise = Rise(server)
    begun = time.monotonic()
    timings = server.chat("a[pause]b[pause]c").json()["timings"]
    elapsed = time.monotonic() - begun
    queue, prefill, decode = (timings[name] / 1000 for name in ("queue_ms", "prompt_ms", "predicted_ms"))
    for name, seconds in {
        "request_queue_time": queue,
        "request_prefill_time": prefill,
        "request_decode_time": decode,
        "request_inference_time": prefill + decode,
        "request_time_per_output_token": decode / (timings["predicted_n"] - 1),
    }.items():
        assert rise.of(f"{name}_seconds_sum") == pytest.approx(seconds, abs=ROUNDED)
    first, whole = (rise.of(f"{name}_seconds_sum") for name in ("time_to_first_token", "e2e_request_latency"))
    assert queue + prefill - ROUNDED <= first <= whole <= elapsed
    assert whole >= queue + prefill + decode - ROUNDED
    assert decode > 0.1  # two pauses of 50 ms


def test_one_token_has_no_time_per_token(server: Server) -> None:
    rise = Rise(server)
    assert server.complete("hello", max_tokens=1).json()["usage"]["completion_tokens"] == 1
    assert rise.ends() == {"length": 1}
    assert rise.of("request_time_per_output_token_seconds_count") == 0
    assert rise.of("inter_token_latency_seconds_count") == 0


def test_a_queue_shows_and_those_who_leave_it_count(server: Server) -> None:
    rise = Rise(server)
    with full_server(server, 3):
        now = page(server)
        assert (now.value("num_requests_running"), now.value("num_requests_waiting")) == (SLOTS, 3)
    now = page(server)
    assert (now.value("num_requests_running"), now.value("num_requests_waiting")) == (0, 0)
    assert rise.ends() == {"abort": SLOTS + 3}


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves(server: Server, stream: bool) -> None:
    rise = Rise(server)
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.sendall(request("/v1/completions", {"prompt": LONG, "stream": stream}))
        server.until(lambda report: report["live_rows"] == 1)
    wait_idle(server)
    assert rise.ends() == {"abort": 1}
    assert rise.of("e2e_request_latency_seconds_count") == 0


@pytest.mark.parametrize("stream", [False, True])
def test_a_request_that_fails(server: Server, stream: bool) -> None:
    rise = Rise(server)
    server.complete("ab[fail]", stream=stream)
    assert rise.ends() == {"error": 1}
    assert rise.of("error_answers_total", status="500") == (0 if stream else 1)


def test_a_worker_that_dies(server: Server) -> None:
    rise = Rise(server)
    assert server.complete("ab[die]").status_code == 500
    assert rise.ends() == {"error": 1}
    server.until(lambda report: report["status"] == "ok", 20)
    assert rise.of("worker_restarts_total") == 2
    assert rise.of("compiles_after_ready_total") == 0


def test_refused_requests_end_nowhere_else(server: Server) -> None:
    rise = Rise(server)
    assert server.complete("x" * CONTEXT).status_code == 400  # found by the worker
    assert server.complete("x" * (CONTEXT + 1)).status_code == 400  # found before it is sent
    assert server.complete("").status_code == 400
    assert server.http.get("/nope").status_code == 404
    assert server.http.post("/v1/completions", content=b"{}").status_code == 415
    for status, count in {"400": 3, "404": 1, "415": 1}.items():
        assert rise.of("error_answers_total", status=status) == count
    assert rise.ends() == {}
    assert rise.of("prompt_tokens_total") == 0


def test_too_many_wait(server: Server) -> None:
    rise = Rise(server)
    with full_server(server, 32):
        assert server.complete("x").status_code == 429
    assert rise.of("error_answers_total", status="429") == 1
    assert rise.ends() == {"abort": SLOTS + 32}


def test_histograms_are_well_formed(server: Server) -> None:
    assert server.complete("hello").status_code == 200
    now = page(server)
    for name in (name for name, kind in VLLM.items() if kind == "histogram"):
        buckets = [
            (float(sample.labels["le"]), sample.value)
            for sample in now.samples
            if sample.name == f"mashbox:{name}_bucket"
        ]
        assert buckets == sorted(buckets)
        assert [value for _, value in buckets] == sorted(value for _, value in buckets)
        assert buckets[-1] == (float("inf"), now.value(f"{name}_count"))
        assert now.value(f"{name}_sum") >= 0


def test_no_label_tells_of_a_request(server: Server) -> None:
    secret = "unlikely-to-be-here"
    headers = {"Authorization": f"Bearer {secret}", "X-Session-Id": secret, "User-Agent": secret}
    for route, body in ROUTES.items():
        told = body | {"user": secret, "metadata": {"user_id": secret}, "prompt_cache_key": secret}
        server.http.post(f"{route}?beta={secret}", json=told, headers=headers)
    server.http.get(f"/{secret}")
    text = server.http.get("/metrics").text
    assert secret not in text
    values: dict[str, set[str]] = {}
    for sample in Page(text).samples:
        for label, value in sample.labels.items():
            values.setdefault(label, set()).add(value)
    assert values.pop("model_name") == {MODEL_ID}
    assert values.pop("finished_reason") == set(ENDS)
    assert all(re.fullmatch(r"[45]\d\d", status) for status in values.pop("status"))
    assert set(values) == {"le", "block_size", "num_blocks", "num_gpu_blocks"}


def expressions(node: Any) -> Iterator[str]:
    """Every query in a dashboard."""
    if isinstance(node, dict):
        for key, value in node.items():
            if key in ("expr", "query", "definition") and isinstance(value, str):
                yield value
            else:
                yield from expressions(value)
    elif isinstance(node, list):
        for value in node:
            yield from expressions(value)


def test_the_dashboard_only_asks_for_what_there_is(server: Server) -> None:
    server.complete("hello")
    now = page(server)
    series = {sample.name for sample in now.samples}
    asked = {
        name
        for text in expressions(json.loads(DASHBOARD.read_text()))
        for name in re.findall(r"\b[a-z]+:[a-z0-9_:]+", text)
    }
    assert asked <= series
    families = {re.sub(r"_(bucket|sum|count|total)$", "", name.removeprefix("mashbox:")) for name in asked}
    # Two of vLLM's names for what another one shows here.
    assert families == (VLLM | OWN).keys() - {
        "request_max_num_generation_tokens",
        "request_inference_time_seconds",
    }


def test_the_dashboards_labels_exist(server: Server) -> None:
    labels = {label for sample in page(server).samples for label in sample.labels}
    for text in expressions(json.loads(DASHBOARD.read_text())):
        used = re.findall(r"by ?\(([^)]*)\)", text) + re.findall(r"(\w+)=~?\"", text)
        assert {label.strip() for part in used for label in part.split(",")} <= labels, text
