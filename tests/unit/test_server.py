"""How a server process ends."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
from pathlib import Path

import msgspec
import pytest
import uvloop

from mashbox import server
from mashbox.api.settings import ServeConfig
from mashbox.config import ModelConfig, WorkerConfig
from tests.scripted import ScriptedBackend


def test_a_signal_while_the_model_loads_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MASHBOX_CACHE", str(tmp_path))
    weights = tmp_path / "weights"
    weights.write_bytes(b"w")
    model = ModelConfig("slow", context=512, slots=1, threads=1)
    deployment = server.Deployment(
        ServeConfig("m", "weights", 512, 1),
        WorkerConfig(model, backend="tests.scripted:ScriptedBackend"),
        (weights,),
    )
    threading.Timer(2.0, os.kill, (os.getpid(), signal.SIGTERM)).start()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        uvloop.run(asyncio.wait_for(server.run(deployment, listener, lambda facts: None), 15))


@pytest.mark.parametrize(("name", "expected"), [(None, "plain"), ("llama3", "llama3")])
def test_the_tool_format_of_a_deployment(name: str | None, expected: str) -> None:
    config = WorkerConfig(ModelConfig("m", context=512, slots=1, threads=1))
    deployment = server.Deployment(ServeConfig("m", "weights", 512, 1), config, (), tool_format=name)
    facts = ScriptedBackend(config.model, lambda fraction: None).facts
    assert server.chat_format(deployment, facts).tools.name == expected


@pytest.mark.parametrize("can_trim", [True, False])
def test_prompts_tell_branches_where_states_cannot_be_cut(can_trim: bool) -> None:
    config = WorkerConfig(ModelConfig("m", context=512, slots=1, threads=1))
    deployment = server.Deployment(ServeConfig("m", "weights", 512, 1), config, ())
    facts = ScriptedBackend(config.model, lambda fraction: None).facts
    chat = server.chat_format(deployment, msgspec.structs.replace(facts, can_trim=can_trim))
    assert chat.branching is not can_trim
