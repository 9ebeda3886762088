"""The agents with the real demo model. Their own prompts do not fit its 8,192 tokens: they get short ones.

So small a model may chatter on for ever, depending on what it reads. Hence no prompt holds the day or the
folder; Pi's always does, so its answer is cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.clients.agents import CLAUDE_CODE, CODEX, PI_CHAT, Client, Desk, Run, claude_code, codex, pi
from tests.clients.conftest import make_desk
from tests.clients.proxy import Proxy
from tests.model.conftest import Box, run_box

QUESTION = "Name three planets."
SHORT = "Answer in a few words."


def ask_claude_code(desk: Desk) -> Run:
    return claude_code(desk, QUESTION, "--bare", "--system-prompt", SHORT, "--tools", "")


def ask_codex(desk: Desk) -> Run:
    instructions = desk.home / "short.md"
    instructions.write_text(SHORT)
    settings = (
        f"model_instructions_file={instructions}",
        "web_search=disabled",
        "skills.bundled.enabled=false",
        "include_environment_context=false",
        "include_permissions_instructions=false",
    )
    features = ("goals", "multi_agent", "shell_tool", "view_image")
    options = [word for setting in settings for word in ("-c", setting)]
    options += [word for feature in features for word in ("--disable", feature)]
    return codex(desk, QUESTION, "exec", *options)


def ask_pi(desk: Desk) -> Run:
    return pi(desk, QUESTION, "--no-tools", "--system-prompt", SHORT, max_tokens=40)


@pytest.fixture(scope="module")
def demo_box() -> Iterator[Box]:
    with run_box("smollm2-135m", "--ctx", "2048", "--slots", "1") as box:
        yield box


@pytest.mark.parametrize(
    ("client", "ask"),
    [(CLAUDE_CODE, ask_claude_code), (CODEX, ask_codex), (PI_CHAT, ask_pi)],
    ids=["claude-code", "codex", "pi"],
)
def test_the_user_reads_what_the_model_says(
    client: Client, ask: Callable[[Desk], Run], demo_box: Box, tmp_path: Path
) -> None:
    with Proxy(int(demo_box.url.rpartition(":")[2])).running() as proxy:
        run = ask(make_desk(tmp_path, proxy.url))
    [exchange] = proxy.posts(client.route)
    exchange.check()
    assert len(exchange.text.split()) > 1
    assert exchange.text.strip() in run.out, run
