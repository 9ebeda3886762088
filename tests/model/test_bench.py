"""The benchmark's short form: its scenarios against our own real server, and the engine's share."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.config import Setup
from bench.conversations import Return, SecondTurn, Sessions
from bench.engine_share import measure_engine_shares
from bench.load import Ask, Client, Route
from bench.measure import Arrival, Decode, Prefill, count_tokens
from bench.prompts import fresh_text

from tests.model.conftest import DEMO, Box, run_box


def client_of(box: Box, route: Route = Route.COMPLETIONS) -> Client:
    return Client(int(box.url.rpartition(":")[2]), route, must_reuse=True)


def test_scenarios_run_against_a_real_server(box: Box) -> None:
    with client_of(box) as client:
        (counts,) = count_tokens(client, [Ask(fresh_text(300, "short"), 1)])
        assert counts.prompt_tokens >= 300
        assert Decode(4, 24).measure(client, "short") > 0
        assert Prefill(300, counts.prompt_tokens).measure(client, "short") > 0


def test_a_long_prompt_does_not_stall_a_running_stream(box: Box) -> None:
    with client_of(box) as client:
        # A server that reads a prompt in one go is near 1.
        assert Arrival(900, 96).measure(client, "short") < 0.5


@pytest.mark.parametrize("route", list(Route), ids=lambda route: route.value)
def test_conversations_reuse_what_was_computed(demo_file: Path, route: Route) -> None:
    """The scenarios refuse answers whose counts say otherwise; a displaced state needs host memory."""
    options = ("--ctx", "1024", "--slots", "2", "--cache-ram", "128")
    with run_box(DEMO, *options) as box, client_of(box, route) as client:
        assert Sessions(3, 130).measure(client, route.value) > 0
        assert SecondTurn(130, 16).measure(client, route.value) > 0
        assert 0 < Return(2, 130).measure(client, route.value) < 1


def test_the_loop_takes_little_of_a_step(demo_file: Path) -> None:
    (share,) = measure_engine_shares(Setup(demo_file, 512, 2, 1), (2,), 24)
    assert 0 < share.outside < 0.5
