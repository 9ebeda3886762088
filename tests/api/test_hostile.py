"""Requests that keep a template or a grammar busy harm themselves and nobody else."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.api.conftest import Server
from tests.unit.grammar_attacks import SCHEMAS

ANSWERED_S = 4.0
"""The supervisor and the template's deadline would take longer."""


def test_an_endless_rendering_is_an_error_of_its_own_request(server: Server) -> None:
    restarts = server.health()["worker_restarts"]
    with ThreadPoolExecutor() as pool:
        begun = time.monotonic()
        spin = pool.submit(server.chat, "[spin]")
        time.sleep(0.2)
        for n in range(20):
            asked = time.monotonic()
            answer = server.chat(f"number {n}")
            assert answer.json()["choices"][0]["message"]["content"] == f"number {n}"
            assert time.monotonic() - asked < ANSWERED_S
        refused = spin.result()
    assert 5 <= time.monotonic() - begun < 15
    assert refused.status_code == 400
    error = refused.json()["error"]
    assert (error["code"], error["param"]) == ("template_error", "messages")
    assert "runs for more than 5 seconds" in error["message"]
    assert server.chat("hi").status_code == 200
    assert server.health()["worker_restarts"] == restarts


def test_endless_counts_and_messages_have_errors_of_their_route(server: Server) -> None:
    body = {"model": "org/scripted", "messages": [{"role": "user", "content": "[spin]"}], "max_tokens": 9}
    with ThreadPoolExecutor() as pool:
        for route in ("/v1/messages", "/v1/messages/count_tokens"):
            answer = pool.submit(server.http.post, route, json=body)
            assert server.chat("hi").status_code == 200
            assert answer.result().status_code == 400
            assert answer.result().json()["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize("name", ["many patterns at once", "patterns that hide", "multiples of a lot"])
def test_a_schema_that_takes_long_holds_nobody_up(server: Server, name: str) -> None:
    restarts = server.health()["worker_restarts"]
    tool = {"type": "function", "function": {"name": "f", "parameters": SCHEMAS[name]}}
    with ThreadPoolExecutor() as pool:
        attack = pool.submit(server.chat, "hi", tools=[tool], tool_choice="required", max_tokens=30)
        while not attack.done():
            assert server.health()["status"] == "ok"
            time.sleep(0.05)
    assert attack.result().status_code == 200
    assert server.chat("hi").status_code == 200
    assert server.health()["worker_restarts"] == restarts
