"""How a server process ends."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

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
    assert server.format_source(deployment, facts).build().tools.name == expected


@pytest.mark.parametrize("can_trim", [True, False])
def test_prompts_tell_branches_where_states_cannot_be_cut(can_trim: bool) -> None:
    config = WorkerConfig(ModelConfig("m", context=512, slots=1, threads=1))
    deployment = server.Deployment(ServeConfig("m", "weights", 512, 1), config, ())
    facts = ScriptedBackend(config.model, lambda fraction: None).facts
    source = server.format_source(deployment, msgspec.structs.replace(facts, can_trim=can_trim))
    assert source.build().branching is not can_trim


def namespace(weights: Path, **changes: Any) -> str | None:
    """The cache's namespace with these settings changed."""
    model = replace(ModelConfig("m", context=512, slots=1, threads=1), **changes)
    deployment = server.Deployment(ServeConfig("m", "weights", 512, 1), WorkerConfig(model), (weights,))
    facts = ScriptedBackend(model, lambda fraction: None).facts
    engine: Any = SimpleNamespace(status=SimpleNamespace(facts=facts))
    identity = server.ModelIdentity(deployment, engine)
    asyncio.run(identity.read_weights())
    return identity.now().cache_namespace


def test_the_caches_namespace_names_what_changes_states(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MASHBOX_CACHE", str(tmp_path))
    weights = tmp_path / "weights"
    weights.write_bytes(b"w")
    others: list[dict[str, Any]] = [
        {"flash_attn": "off"},
        {"cache_type_k": "q8_0"},
        {"cache_type_v": "q8_0"},
        {"exact": True},
    ]
    names = [namespace(weights), *(namespace(weights, **changes) for changes in others)]
    assert None not in names
    assert len(set(names)) == len(names)
    assert namespace(weights, threads=2) == names[0]
    weights.write_bytes(b"v2")
    assert namespace(weights) != names[0]
