"""What only Codex does: patches as free text, tools in namespaces, a model catalog of its own."""

from __future__ import annotations

import json
from typing import Any

from tests.clients.agents import CODEX, MODEL_ID, Desk, codex
from tests.clients.conftest import CONTEXT, Box
from tests.clients.proxy import Proxy
from tests.clients.script import call, results, said, think
from tests.model_script import Rule

PATCH = '*** Begin Patch\n*** Add File: new.txt\n+say "hi" \\ and {bye}\n+</tool_call> 🎉\n*** End Patch'
MODEL: dict[str, Any] = {
    "slug": MODEL_ID,
    "display_name": MODEL_ID,
    "base_instructions": "You work on the files of this folder.",
    "context_window": CONTEXT,
    "apply_patch_tool_type": "freeform",
    "supported_reasoning_levels": [],
    "shell_type": "unified_exec",
    "visibility": "list",
    "supported_in_api": True,
    "priority": 1,
    "support_verbosity": False,
    "truncation_policy": {"mode": "tokens", "limit": 10_000},
    "experimental_supported_tools": [],
    "supports_parallel_tool_calls": True,
    "supports_reasoning_summaries": True,
}


def test_a_patch_as_free_text(box: Box, desk: Desk, proxy: Proxy) -> None:
    box.play(
        Rule(said("new file"), think("A patch it is.") + call("apply_patch", input=PATCH)),
        Rule(results("Success"), "The file is there."),
    )
    catalog = desk.home / "models.json"
    catalog.write_text(json.dumps({"models": [MODEL]}))
    run = codex(desk, "Make a new file.", "exec", "-c", f'model_catalog_json="{catalog}"')
    assert (desk.folder / "new.txt").read_text() == 'say "hi" \\ and {bye}\n</tool_call> 🎉\n', run
    assert "The file is there." in run.out
    kinds = [item["type"] for item in proxy.posts(CODEX.route)[-1].request["input"]]
    assert kinds[-3:] == ["reasoning", "custom_tool_call", "custom_tool_call_output"]


def test_a_tool_in_a_namespace(box: Box, desk: Desk, proxy: Proxy) -> None:
    box.play(
        Rule(said("small task"), "The small task is done."),
        Rule(
            said("delegate"),
            call("multi_agent_v1__spawn_agent", message="Do this small task."),
        ),
        Rule(results("agent_id"), "It is delegated."),
    )
    run = codex(desk, "Please delegate.")
    assert "It is delegated." in run.out, run
    items = [item for exchange in proxy.posts(CODEX.route) for item in exchange.request["input"]]
    [spawned] = [item for item in items if item["type"] == "function_call"]
    assert (spawned["namespace"], spawned["name"]) == ("multi_agent_v1", "spawn_agent")
