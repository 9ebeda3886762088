"""What every coding agent must get through, judged by what it did to the files in its folder."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from mashbox.errors import NotReadyError, OverloadedError, RequestError
from mashbox.http.errors import error_response
from mashbox.http.record import RequestRecord
from tests.clients.agents import AGENTS, CLAUDE_CODE, CLIENTS, CODEX, PI_CHAT, Client, Desk
from tests.clients.conftest import Box, make_desk, run_scripted
from tests.clients.proxy import Proxy
from tests.clients.script import results, said, think
from tests.model_script import Rule

EXACT = (
    'a "quoted" word, a \\ and a \\n,\n\ttab, {braces}, </tool_call>, <|im_end|>, ünïcödé 🎉\n'
    "<think>not a thought</think>\nlast line\n"
)
ANY_RESULT = results("")
BUSY = OverloadedError("32 requests are waiting already.", retry_after=3)
LOADING = NotReadyError("The model is still loading. Please try again.", retry_after=3)

each_client = pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
each_agent = pytest.mark.parametrize("client", AGENTS, ids=lambda client: client.name)


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
        Rule(said("keep notes"), think("First a look.") + "I look." + client.shell("echo $((6 * 7))!")),
        Rule(results("42!"), client.write(notes, EXACT), times=1),
        Rule(ANY_RESULT, client.edit(notes, "last line", 'the "end"'), times=1),
        Rule(ANY_RESULT, "The notes are written."),
    )
    run = client.run(desk, "Please keep notes.")
    assert notes.read_text() == EXACT.replace("last line", 'the "end"'), run
    assert "The notes are written." in run.out
    assert think("First a look.") in last_prompt(box)
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
    [failed, _] = last_results(box)
    assert re.search("code:? 3", failed)
    # Only Messages has a field for it.
    assert failed.startswith("Error: ") == (client.route == "/v1/messages")


@each_agent
@pytest.mark.parametrize("error", [BUSY, LOADING], ids=["busy", "loading"])
def test_a_refusal_in_mid_loop_is_waited_out(
    client: Client, error: RequestError, box: Box, desk: Desk, proxy: Proxy
) -> None:
    proxy.judge = lambda exchange, before: error if exchange.route == client.route and before == 1 else None
    box.play(
        Rule(said("go on"), client.shell("echo one > 1.txt; echo written")),
        Rule(results("written"), "I went on."),
    )
    run = client.run(desk, "Please go on.")
    assert "I went on." in run.out, run
    refused = error_response(error, RequestRecord("POST", client.route)).status_code
    assert refused in (429, 503, 529)
    posts = proxy.posts(client.route)
    assert [exchange.status for exchange in posts] == [200, refused, 200]
    # Their own first back-off is at most a second.
    assert posts[2].begun - posts[1].begun >= 3


@each_agent
def test_a_crash_of_the_worker_in_mid_loop_is_survived(client: Client, box: Box, desk: Desk) -> None:
    box.play(
        Rule(said("go on"), client.shell("echo one >> 1.txt; echo written")),
        Rule(results("written"), "I went [[pause 0.3]][[die]]", times=1),
        Rule(results("written"), "I went on."),
    )
    run = client.run(desk, "Please go on.")
    assert "I went on." in run.out, run
    assert (desk.folder / "1.txt").read_text() == "one\n"


@pytest.mark.parametrize("client", [CLAUDE_CODE, CODEX], ids=lambda client: client.name)
def test_an_answer_that_fails_is_asked_for_again(client: Client, box: Box, desk: Desk) -> None:
    box.play(
        Rule(said("go on"), "I went [[fail]]", times=1),
        Rule(said("go on"), client.shell("echo one >> 1.txt; echo written")),
        Rule(results("written"), "I went on."),
    )
    run = client.run(desk, "Please go on.")
    assert "I went on." in run.out, run
    assert (desk.folder / "1.txt").read_text() == "one\n"


def test_pi_tells_that_an_answer_failed(box: Box, desk: Desk) -> None:
    """It only asks again when an error says that it is the server's."""
    box.play(Rule(said("go on"), "I went [[fail]]"))
    run = PI_CHAT.run(desk, "Please go on.")
    assert "The model failed while it worked on this request." in run.err, run


@each_client
def test_all_but_the_new_part_of_a_turn_is_cached(client: Client, box: Box, desk: Desk, proxy: Proxy) -> None:
    box.play(
        Rule(said("second question"), "The second answer."),
        Rule(said("first question"), "I look first.\n" + client.shell("echo found")),
        Rule(results("found"), "The first answer, in a few more words than the second one."),
    )
    client.run(desk, "My first question")
    run = client.carry_on(desk, "My second question")
    assert "The second answer." in run.out, run
    call, answer, turn = (exchange.usage for exchange in proxy.posts(client.route))
    for earlier, later in ((call, answer), (answer, turn)):
        # The token that ended the answer was never read by the model.
        assert later.cached == earlier.prompt + earlier.output - 1, (call, answer, turn)


@pytest.fixture(scope="module")
def small_box(vocabulary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    """A server whose context is too small for any agent's first prompt."""
    with run_scripted(tmp_path_factory.mktemp("small"), vocabulary, 256) as box:
        yield box


@each_client
def test_a_prompt_that_is_too_long_is_told(client: Client, small_box: Box, tmp_path: Path) -> None:
    with Proxy(small_box.port).running() as proxy:
        run = client.run_telling(make_desk(tmp_path, proxy.url), "hello")
    assert re.search(client.too_long, run.out + run.err), run
