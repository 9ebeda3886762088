"""What every coding agent must get through, judged by what it did to the files in its folder."""

from __future__ import annotations

import re

import pytest

from tests.clients.agents import CLAUDE_CODE, CLIENTS, CODEX, PI_CHAT, Client, Desk
from tests.clients.conftest import Box
from tests.clients.script import results, said, think
from tests.model_script import Rule

EXACT = 'a "quoted" word, a \\ and a \\n,\n\ttab, {braces}, </tool_call> and <think>, ünïcödé 🎉\nlast line\n'
ANY_RESULT = results("")

each_client = pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
each_agent = pytest.mark.parametrize("client", (CLAUDE_CODE, CODEX, PI_CHAT), ids=lambda client: client.name)


def last_prompt(box: Box) -> str:
    """What the model was asked last."""
    return box.script.journal()[-1].prompt


def last_results(box: Box) -> list[str]:
    """The texts of all tool results in the last prompt."""
    return re.findall(r"<tool_response>\n(.*?)\n</tool_response>", last_prompt(box), re.DOTALL)


@each_client
def test_a_loop_runs_to_its_end(client: Client, box: Box, desk: Desk) -> None:
    notes = desk.folder / "notes.txt"
    box.play(
        Rule(
            said("keep notes"), think("First a look.") + "I look around." + client.shell("echo $((6 * 7))!")
        ),
        Rule(results("42!"), client.write(notes, EXACT), times=1),
        Rule(ANY_RESULT, client.edit(notes, "last line", 'the "end"'), times=1),
        Rule(ANY_RESULT, "The notes are written."),
    )
    run = client.run(desk, "Please keep notes.")
    assert notes.read_text() == EXACT.replace("last line", 'the "end"'), run
    assert "The notes are written." in run.out
    assert [asked.rule for asked in box.script.journal()] == [0, 1, 2, 3]


@each_client
def test_two_calls_at_once(client: Client, box: Box, desk: Desk) -> None:
    box.play(
        Rule(
            said("both"),
            client.shell("sleep 0.5; echo one > 1.txt; echo 'the first'")
            + "\n"
            + client.shell("echo two > 2.txt; echo 'the second'"),
        ),
        Rule(results("the first", "the second"), "Both are done."),
    )
    run = client.run(desk, "Do both.")
    assert "Both are done." in run.out, run
    assert (desk.folder / "1.txt").read_text() + (desk.folder / "2.txt").read_text() == "one\ntwo\n"


@each_client
def test_the_model_sees_that_a_tool_failed(client: Client, box: Box, desk: Desk) -> None:
    box.play(
        Rule(said("try it"), client.shell("echo some oops >&2; exit 3")),
        Rule(results("some oops"), client.shell("echo repaired > state.txt"), times=1),
        Rule(ANY_RESULT, "It works now."),
    )
    run = client.run(desk, "Please try it.")
    assert "It works now." in run.out, run
    assert (desk.folder / "state.txt").read_text() == "repaired\n"
    assert re.search("code:? 3", last_results(box)[0])
