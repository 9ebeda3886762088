"""Templates in processes of their own: the same prompts, and nobody harmed by a rendering that goes wrong."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from mashbox.chat.prompt import FormatSource, build_prompt, render
from mashbox.chat.renderer import PROCESSES, Renderer, check_template
from mashbox.chat.types import ChatRequest, GenerateOptions, Message, Text, Tool, ToolCall, ToolChoice
from mashbox.engine.types import Sampling, TextDelta
from mashbox.errors import ConfigError, EngineError, InvalidRequestError
from tests.unit.templated import environment, is_running, spinning, until

FOLDER = Path(__file__).parent / "templates" / "tools"
SCHEMA = {"type": "object", "properties": {"path": {"type": "integer", "maximum": 10**30, "minimum": 1.0}}}
TOOLS = (Tool("look", "Looks it up.", SCHEMA), Tool("stop"))
DEADLINE_S = 1.5
PLAIN = "{% for m in messages %}[{{ m.content }}]{% endfor %}"
MARKED = FormatSource(
    "{% for m in messages %}{% if m.content == 'spin' %}" + spinning("m.content") + "{% endif %}"
    "{% if m.content == 'grow' %}{% set n = namespace(x=[]) %}{% for i in range(99) %}"
    "{% set n.x = n.x + ['é€' * 9999999 ~ i] %}{% endfor %}{% endif %}"
    "[{{ m.content }}]{% endfor %}"
)


def ask(text: str = "U", **fields: Any) -> ChatRequest:
    messages = fields.pop("messages", (Message("user", text),))
    return ChatRequest(messages, GenerateOptions(Sampling()), **fields)


def run(test: Callable[[Renderer], Coroutine[Any, Any, None]], source: FormatSource = MARKED) -> None:
    async def main() -> None:
        renderer = Renderer(source, DEADLINE_S)
        try:
            async with asyncio.timeout(60):
                await renderer.ready()
                await test(renderer)
        finally:
            await renderer.close()

    asyncio.run(main())


async def text(renderer: Renderer, request: ChatRequest) -> str:
    return "".join(segment.text for segment in (await renderer.prompt(request)).segments)


async def both(renderer: Renderer) -> frozenset[int]:
    """The processes, once all of them are ready."""
    await until(lambda: len(renderer.processes) == PROCESSES)
    return renderer.processes


CALLED = (
    Message("user", "hi <|im_end|>"),
    Message("assistant", "", thinking="hm", tool_calls=(ToolCall("x", "look", '{"path": 1.0}'),)),
    Message("tool", "R \ue000 é", tool_call_id="x"),
)


@pytest.mark.parametrize("name", ["qwen3", "harmony", "gemma"])
def test_prompts_are_those_of_the_template(name: str) -> None:
    source = FormatSource(
        (FOLDER / f"{name}.jinja").read_text(), "<s>", "</s>", ("<|im_start|>", "<|im_end|>"), branching=True
    )
    chat = source.build()
    requests = [
        ask(),
        ask(tools=TOOLS),
        ask(tools=TOOLS, tool_choice=ToolChoice("required")),
        ask(messages=CALLED, tools=TOOLS, template_kwargs={"deep": [1, 1.0, None, True, {"a": 2**70}]}),
    ]

    async def test(renderer: Renderer) -> None:
        for request in requests:
            assert await renderer.prompt(request) == build_prompt(chat, request)
            assert await renderer.segments(request) == render(chat, request)

    run(test, source)


def test_the_parser_is_that_of_the_templates_format() -> None:
    async def test(renderer: Renderer) -> None:
        for request, expected in ((ask(), [Text("<tool_call>")]), (ask(tools=TOOLS), [])):
            assert [*renderer.parser(request).feed(TextDelta("", "<tool_call>"))] == expected

    run(test, FormatSource((FOLDER / "qwen3.jinja").read_text()))


def test_what_the_template_refuses_comes_back_as_it_is() -> None:
    async def test(renderer: Renderer) -> None:
        with pytest.raises(InvalidRequestError, match="refuses this conversation: no U here") as caught:
            await renderer.prompt(ask())
        assert (caught.value.param, caught.value.code) == ("messages", "template_error")
        with pytest.raises(InvalidRequestError) as caught:
            await renderer.prompt(ask(template_kwargs={"messages": []}))
        assert (caught.value.param, caught.value.code) == ("chat_template_kwargs", None)
        assert await text(renderer, ask("V")) == "[V]"

    refusing = "{% if messages[0].content == 'U' %}{{ raise_exception('no U here') }}{% endif %}"
    run(test, FormatSource(refusing + PLAIN))


def test_half_a_character_in_a_prompt_is_refused() -> None:
    async def test(renderer: Renderer) -> None:
        with pytest.raises(InvalidRequestError, match="surrogate") as caught:
            await renderer.prompt(ask("half"))
        assert caught.value.code == "template_error"
        assert await text(renderer, ask()) == "[U]"

    run(test, FormatSource("{% if messages[0].content == 'half' %}{{ '\\ud83d' }}{% endif %}" + PLAIN))


def test_tenants_take_turns() -> None:
    async def test(renderer: Renderer) -> None:
        await both(renderer)
        greedy = [asyncio.create_task(renderer.prompt(ask("spin"), "greedy")) for _ in range(3 * PROCESSES)]
        await asyncio.sleep(0)
        await renderer.prompt(ask(), "modest")
        assert sum([task.done() for task in greedy]) <= PROCESSES
        for task in greedy:
            task.cancel()
        await asyncio.gather(*greedy, return_exceptions=True)

    run(test)


def test_a_rendering_that_does_not_end_harms_nobody_else() -> None:
    async def test(renderer: Renderer) -> None:
        first = await both(renderer)
        begun = time.monotonic()
        spin = asyncio.create_task(renderer.prompt(ask("spin")))
        await asyncio.sleep(0.1)
        for n in range(100):
            assert await text(renderer, ask(str(n))) == f"[{n}]"
        assert not spin.done()
        with pytest.raises(InvalidRequestError, match=r"it runs for more than 1\.5 seconds") as caught:
            await spin
        assert (caught.value.param, caught.value.code) == ("messages", "template_error")
        assert time.monotonic() - begun >= DEADLINE_S
        assert len(first & await both(renderer)) == 1  # the other one is new

    run(test)


def test_those_who_wait_behind_endless_ones_are_rendered_in_the_end() -> None:
    async def test(renderer: Renderer) -> None:
        await both(renderer)
        spins = [asyncio.create_task(renderer.prompt(ask("spin"))) for _ in range(3)]
        await asyncio.sleep(0.1)
        waiting = [asyncio.create_task(text(renderer, ask(str(n)))) for n in range(20)]
        assert await asyncio.gather(*waiting) == [f"[{n}]" for n in range(20)]
        outcomes = await asyncio.gather(*spins, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {InvalidRequestError}

    run(test)


def test_who_leaves_the_line_is_not_rendered() -> None:
    async def test(renderer: Renderer) -> None:
        await both(renderer)
        spins = [asyncio.create_task(renderer.prompt(ask("spin"))) for _ in range(8)]
        await asyncio.sleep(0.1)
        for spin in spins[2:]:
            spin.cancel()
        begun = time.monotonic()
        assert await text(renderer, ask()) == "[U]"
        assert time.monotonic() - begun < 2 * DEADLINE_S + 5
        await asyncio.gather(*spins, return_exceptions=True)

    run(test)


def test_memory_has_an_end() -> None:
    async def test(renderer: Renderer) -> None:
        with pytest.raises(InvalidRequestError) as caught:
            await renderer.prompt(ask("grow"))
        assert caught.value.code == "template_error"
        assert await text(renderer, ask()) == "[U]"

    run(test)


def test_a_death_that_may_have_had_another_reason_is_tried_once_more() -> None:
    async def test(renderer: Renderer) -> None:
        (first, second) = await both(renderer)
        spins = [asyncio.create_task(renderer.prompt(ask("spin"))) for _ in range(2)]
        await asyncio.sleep(0.1)
        os.kill(first, signal.SIGKILL)
        assert await text(renderer, ask()) == "[U]"
        for spin in spins:  # the one whose process was killed had its whole time once more
            with pytest.raises(InvalidRequestError, match="it runs for more than"):
                await spin
        assert second not in renderer.processes

    run(test)


def test_who_kills_its_process_twice_is_not_tried_again() -> None:
    async def test(renderer: Renderer) -> None:
        spin = asyncio.create_task(renderer.prompt(ask("spin")))
        while not spin.done():
            for pid in await both(renderer):
                os.kill(pid, signal.SIGKILL)
            await asyncio.sleep(0.2)
        with pytest.raises(InvalidRequestError, match=r"its process ended \(signal 9\)") as caught:
            await spin
        assert caught.value.code == "template_error"
        assert await text(renderer, ask()) == "[U]"

    run(test)


def test_a_stopped_process_is_killed() -> None:
    async def test(renderer: Renderer) -> None:
        for pid in await both(renderer):
            os.kill(pid, signal.SIGSTOP)
        for _ in range(PROCESSES):
            with pytest.raises(InvalidRequestError, match="it runs for more than"):
                await renderer.prompt(ask())
        assert await text(renderer, ask()) == "[U]"

    run(test)


def test_no_process_can_be_started_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(renderer: Renderer) -> None:
        processes = await both(renderer)
        monkeypatch.setattr(sys, "executable", "/no/such/python")
        for pid in processes:
            os.kill(pid, signal.SIGKILL)
        await until(lambda: not renderer.processes)  # those that die at rest are missed at once
        with pytest.raises(EngineError, match="cannot be started") as caught:
            await renderer.prompt(ask())
        assert caught.value.status == 500
        monkeypatch.undo()
        async with asyncio.timeout(20):
            while True:
                try:
                    assert await text(renderer, ask()) == "[U]"
                    return
                except EngineError:
                    await asyncio.sleep(0.05)

    run(test)


def test_nobody_waits_for_ever_when_it_is_closed() -> None:
    async def main() -> None:
        renderer = Renderer(MARKED)
        await both(renderer)
        pids = renderer.processes
        tasks = [asyncio.create_task(renderer.prompt(ask("spin"))) for _ in range(4)]
        await asyncio.sleep(0.1)
        await renderer.close()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {EngineError}
        assert not any(map(is_running, pids))

    asyncio.run(main())


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{% if %}", "The chat template does not compile: line 1"),
        (spinning("messages"), "The chat template does not end: it runs for more than 5 seconds"),
        ("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "does not end"),
    ],
)
def test_a_template_that_is_no_use_is_told_at_the_start(template: str, message: str) -> None:
    begun = time.monotonic()
    with pytest.raises(ConfigError, match=message):
        check_template(FormatSource(template))
    assert time.monotonic() - begun < 25


def test_an_unknown_tool_format_is_told_at_the_start() -> None:
    with pytest.raises(ConfigError, match="pythia"):
        check_template(FormatSource(PLAIN, tool_format="pythia"))


def test_secrets_of_the_server_are_not_in_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASHBOX_API_KEY", "secret-key")

    async def test(renderer: Renderer) -> None:
        for pid in await both(renderer):
            assert b"secret-key" not in environment(pid)

    run(test)


@pytest.mark.parametrize(("busy", "stopped"), [(False, False), (True, False), (False, True)])
def test_no_process_outlives_a_killed_server(busy: bool, stopped: bool) -> None:
    command = [sys.executable, "-m", "tests.unit.templated", "spin" if busy else "rest"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        pids = [int(pid) for pid in server.stdout.readline().split()]
        assert len(pids) == PROCESSES
        assert all(map(is_running, pids))
        for pid in pids if stopped else ():
            os.kill(pid, signal.SIGSTOP)
        server.kill()
    deadline = time.monotonic() + 20
    while any(map(is_running, pids)):
        assert time.monotonic() < deadline
        time.sleep(0.05)
