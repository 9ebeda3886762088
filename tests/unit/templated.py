"""Templates that go wrong, and a process that renders: `python -m tests.unit.templated spin|rest`.

It prints the ids of the processes that render for it, all of them busy with "spin", and waits.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path

from mashbox.chat.prompt import FormatSource
from mashbox.chat.renderer import PROCESSES, Renderer
from mashbox.chat.types import ChatRequest, GenerateOptions, Message
from mashbox.engine.types import Sampling


def spinning(value: str) -> str:
    """A template that runs for minutes without a turn of a loop or a call that is watched."""
    return "{{ ([[" + value + "] * 1000000] * 1000) | map('sort') | map('length') | sum }}"


def is_running(pid: int) -> bool:
    """Whether a process exists and is not a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def environment(pid: int) -> bytes:
    """The environment that a process was started with."""
    return Path(f"/proc/{pid}/environ").read_bytes()


async def until(true: Callable[[], bool]) -> None:
    """Wait for something to be so."""
    async with asyncio.timeout(30):
        while True:
            if true():
                return
            await asyncio.sleep(0.01)


async def _wait(busy: bool) -> None:
    source = "{% for m in messages %}{% if m.content == 'spin' %}" + spinning("m.content") + "{% endif %}"
    renderer = Renderer(FormatSource(source + "[{{ m.content }}]{% endfor %}"))
    await until(lambda: len(renderer.processes) == PROCESSES)
    request = ChatRequest((Message("user", "spin"),), GenerateOptions(Sampling()))
    tasks = [asyncio.create_task(renderer.prompt(request)) for _ in range(PROCESSES if busy else 0)]
    await asyncio.sleep(0.1)
    print(*renderer.processes, flush=True)
    await asyncio.gather(*tasks)
    await asyncio.sleep(60)


if __name__ == "__main__":
    asyncio.run(_wait(sys.argv[1] == "spin"))
