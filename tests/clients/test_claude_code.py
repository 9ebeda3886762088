"""What only Claude Code does: subagents beside the main conversation, a count of its context."""

from __future__ import annotations

import re

from tests.clients.agents import Desk, claude_code
from tests.clients.conftest import Box
from tests.clients.proxy import Proxy
from tests.clients.script import call, results, said
from tests.model_script import Rule


def agent(task: str) -> str:
    """A call that hands a task to a subagent and waits for it."""
    return call("Agent", description=task, prompt=f"Do the {task}.", run_in_background=False)


def test_two_subagents_at_once(box: Box, desk: Desk, proxy: Proxy) -> None:
    box.play(
        Rule(said("Do the left half."), "[[pause 0.3]]Left is done."),
        Rule(said("Do the right half."), "[[pause 0.3]]Right is done."),
        Rule(said("Split the work."), agent("left half") + "\n" + agent("right half")),
        Rule(results("Left is done.", "Right is done."), "Both are done."),
    )
    run = claude_code(desk, "Split the work.")
    assert "Both are done." in run.out, run
    used = [asked.rule for asked in box.script.journal()]
    assert used in ([2, 0, 1, 3], [2, 1, 0, 3])


def test_the_context_report_counts_tokens(box: Box, desk: Desk, proxy: Proxy) -> None:
    run = claude_code(desk, "/context")
    counts = proxy.posts("/v1/messages/count_tokens")
    assert len(counts) > 15
    assert {exchange.status for exchange in counts} == {200}
    tools = max(exchange.answer["input_tokens"] for exchange in counts)
    assert tools > 5000
    assert re.search(r"System tools \| [5-9]\.\dk", run.out), run.out
