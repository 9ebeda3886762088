"""A failed run is made good once, as long as its client has seen nothing of it. Real deaths."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.api.conftest import Server, run_server

MARKS = ["[die once]", "[fail once]"]
ROUTES = ["/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses"]


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Server]:
    """A server of its own, where "once" means once."""
    file = tmp_path / "scripted.gguf"
    file.touch()
    with run_server(str(file)) as server:
        server.until(lambda report: report["status"] == "ok", 20)
        yield server
        server.until(lambda report: report["live_rows"] == 0 and report["waiting"] == 0)


def body(route: str, line: str, **fields: Any) -> dict[str, Any]:
    if route == "/v1/completions":
        return {"prompt": line, "max_tokens": 50} | fields
    if route == "/v1/responses":
        return {"input": line} | fields
    return {"messages": [{"role": "user", "content": line}], "max_tokens": 50} | fields


def text_of(route: str, answer: dict[str, Any]) -> str:
    match route:
        case "/v1/chat/completions":
            text = answer["choices"][0]["message"]["content"]
        case "/v1/completions":
            text = answer["choices"][0]["text"]
        case "/v1/messages":
            text = answer["content"][0]["text"]
        case _:
            text = answer["output"][0]["content"][0]["text"]
    assert isinstance(text, str)
    return text


def events(server: Server, route: str, line: str) -> tuple[list[str], list[dict[str, Any]]]:
    """The raw lines of a stream, and its events but for the end mark."""
    with server.http.stream("POST", route, json=body(route, line, stream=True)) as answer:
        assert answer.status_code == 200
        lines = [text for text in answer.iter_lines() if text]
    data = [text.removeprefix("data: ") for text in lines if text.startswith("data: ")]
    return lines, [json.loads(text) for text in data if text != "[DONE]"]


@pytest.mark.parametrize("mark", MARKS)
@pytest.mark.parametrize("route", ROUTES)
def test_a_whole_answer_is_begun_anew_also_in_its_middle(own: Server, route: str, mark: str) -> None:
    answer = own.http.post(route, json=body(route, f"well{mark}said"))
    assert answer.status_code == 200
    assert text_of(route, answer.json()) == "wellsaid"
    assert own.health()["worker_restarts"] == (mark == "[die once]")


@pytest.mark.parametrize("mark", MARKS)
@pytest.mark.parametrize("route", ROUTES)
def test_a_stream_is_begun_anew_before_its_first_output(own: Server, route: str, mark: str) -> None:
    _, told = events(own, route, f"{mark}well said")
    assert "".join(_deltas(route, told)) == "well said"
    assert "error" not in {event.get("type") for event in told}
    firsts = [event for event in told if event.get("type") in ("message_start", "response.created")]
    assert len(firsts) == (route in ("/v1/messages", "/v1/responses"))
    if route != "/v1/messages":
        ids = {event.get("id") or event.get("response", {}).get("id") for event in told} - {None}
        assert len(ids) == 1


def _deltas(route: str, told: list[dict[str, Any]]) -> list[str]:
    match route:
        case "/v1/chat/completions":
            return [event["choices"][0]["delta"].get("content", "") for event in told if event["choices"]]
        case "/v1/completions":
            return [event["choices"][0]["text"] for event in told]
        case "/v1/messages":
            return [event["delta"]["text"] for event in told if event["type"] == "content_block_delta"]
        case _:
            return [event["delta"] for event in told if event["type"] == "response.output_text.delta"]


@pytest.mark.parametrize("mark", MARKS)
@pytest.mark.parametrize("route", ROUTES)
def test_a_stream_that_has_sent_output_ends_with_the_routes_error(own: Server, route: str, mark: str) -> None:
    lines, told = events(own, route, f"well[pause]{mark}said")
    assert "".join(_deltas(route, [event for event in told if "error" not in event])) == "well"
    last = told[-1]
    match route:
        case "/v1/messages":
            assert last["type"] == "error"
            assert last["request_id"] == told[0]["message"]["id"]
        case "/v1/responses":
            assert last["type"] == "response.failed"
            assert last["response"]["id"] == told[0]["response"]["id"]
        case _:
            assert last["error"]["request_id"] == told[0]["id"]
            assert lines[-1] == "data: [DONE]"


@pytest.mark.parametrize("mark", ["[die]", "[fail]"])
@pytest.mark.parametrize("route", ROUTES)
def test_it_is_not_tried_a_third_time(own: Server, route: str, mark: str) -> None:
    answer = own.http.post(route, json=body(route, f"well{mark}said"))
    assert answer.status_code == 500
    assert "error" in answer.json()
    assert own.until(lambda report: report["status"] == "ok", 20)["worker_restarts"] == 2 * (mark == "[die]")
    assert text_of(route, own.http.post(route, json=body(route, "next")).json()) == "next"


def test_who_runs_or_waits_beside_a_killer_gets_an_answer(own: Server) -> None:
    """Two slots: the killer, a neighbour in the other one, and six in the line."""
    with ThreadPoolExecutor(8) as pool:
        killer = pool.submit(own.complete, "[pause]" * 4 + "[die]")
        own.until(lambda report: report["live_rows"] == 1)
        lines = [f"{number} " + "[pause]" * 3 + "fine" for number in range(7)]
        others = [pool.submit(own.complete, line) for line in lines]
        assert killer.result(20).status_code == 500
        texts = [other.result(20).json()["choices"][0]["text"] for other in others]
    assert texts == [line.replace("[pause]", "") for line in lines]
    assert own.health()["worker_restarts"] == 2


def test_restarting_tells_when_to_come_back(own: Server) -> None:
    begun = time.monotonic()
    assert own.complete("[die]").status_code == 500
    refused = own.complete("x")
    if refused.status_code == 503:
        time.sleep(int(refused.headers["retry-after"]))
        assert own.complete("x").status_code == 200
    assert time.monotonic() - begun < 20
