"""HTTP that is wrong, large or odd: it is refused, and nobody else notices."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

from tests.api.conftest import Server
from tests.api.wire import HEAD, one, post, prompt_health, send

MIB = 2**20
CLOSE = b"Connection: close"
VALID = post(json.dumps({"prompt": "hi", "n": 1, "stop": ["a", "b"], "stream": False}).encode(), CLOSE)
BODIES = {
    "3000 brackets": (400, b'{"prompt": "hi", "x": ' + b"[" * 3000 + b"]" * 3000 + b"}"),
    "3000 objects": (400, b'{"prompt": "hi", "x": ' + b'{"a":' * 3000 + b"1" + b"}" * 3000 + b"}"),
    "brackets without an end": (400, b"[" * 250_000),
    "many brackets without an end": (413, b"[" * 1_000_000),
    "UTF-8 that is none": (400, b'{"prompt": "\xff\xfe"}'),
    "NULs": (400, b"\0" * 1000),
    "many arrays": (413, b'{"prompt": "hi", "x": [' + b"[]," * (10 * MIB) + b"[]]}"),
    "many objects": (413, b'{"prompt": "hi", "x": [' + b'{"a":1},' * (4 * MIB - 99) + b"1]}"),
    "many strings": (413, b'{"prompt": "hi", "x": [' + b'"",' * (10 * MIB) + b'""]}'),
    "many escapes": (413, b'{"prompt": "' + b"\\n" * (15 * MIB) + b'"}'),
    "long numbers": (413, b'{"prompt": "hi", "x": [' + (b"9" * 60 + b",") * (MIB // 2) + b"1]}"),
    "a long string": (400, b'{"prompt": "' + b"a" * (31 * MIB) + b'"}'),
}


@pytest.fixture(autouse=True)
def clean(server: Server) -> Iterator[None]:
    before = server.descriptors()
    yield
    server.until(lambda _: server.descriptors() <= before + 1)


@pytest.mark.parametrize("case", BODIES)
def test_a_bad_body_is_refused_and_holds_nobody_up(server: Server, case: str) -> None:
    status, body = BODIES[case]
    with prompt_health(server.port):
        assert one(server.port, post(body, CLOSE)).status == status


@pytest.mark.parametrize("chunked", [False, True])
def test_a_client_that_sends_100_mb_can_read_why_not(server: Server, chunked: bool) -> None:
    start = (
        b"Transfer-Encoding: chunked\r\n\r\n5f5e100\r\n" if chunked else b"Content-Length: 100000000\r\n\r\n"
    )
    with prompt_health(server.port):
        answer = one(server.port, HEAD + start + b"a" * 100_000_000)
    assert (answer.status, answer.closed) == (413, True)
    assert "32 MiB" in answer.error["message"]


def test_the_library_can_read_why_not(server: Server, model: str) -> None:
    with prompt_health(server.port), pytest.raises(openai.APIStatusError) as caught:
        server.openai.completions.create(model=model, prompt="a" * 100_000_000)
    assert caught.value.status_code == 413


@pytest.mark.parametrize("field", ["messages", "tools", "parts"])
def test_counts_are_bounded(server: Server, field: str) -> None:
    part = {"type": "text", "text": "a"}
    messages = [{"role": "user", "content": [part] * (10_001 if field == "parts" else 1)}]
    tool = {"type": "function", "function": {"name": "a"}}
    fields = {"messages": messages * (10_001 if field == "messages" else 1)}
    answer = server.http.post(
        "/v1/chat/completions", json=fields | {"tools": [tool] * (2001 if field == "tools" else 0)}
    )
    assert answer.status_code == 400
    param = answer.json()["error"]["param"]
    assert param == {"messages": "messages", "tools": "tools", "parts": "messages[...].content"}[field] or (
        field == "parts" and param.startswith("messages[0].content")
    )


@pytest.mark.parametrize("route", ["/v1/chat/completions", "/v1/messages", "/v1/responses"])
def test_the_deepest_schema_is_taken(server: Server, route: str) -> None:
    schema: dict[str, object] = {"type": "string"}
    for _ in range(45):
        schema = {"type": "object", "properties": {"a": schema}}
    tool = {"name": "a", "description": "b"}
    key = "input_schema" if "messages" in route else "parameters"
    declared: dict[str, object] = tool | {key: schema}
    if "chat" in route:
        declared = {"type": "function", "function": declared}
    elif "responses" in route:
        declared = {"type": "function", **declared}
    turn = [{"role": "user", "content": "hi"}]
    fields = {"input": turn} if "responses" in route else {"messages": turn}
    for choice in ({}, {"tool_choice": {"type": "any"} if "messages" in route else "required"}):
        answer = server.http.post(route, json=fields | {"tools": [declared], "max_tokens": 8} | choice)
        assert answer.status_code == 200, answer.text


def test_what_is_told_back_is_short_and_printable(server: Server) -> None:
    asked = "a\n\x1b" * 100_000
    told = server.complete("hi", model=asked).json()["error"]["message"]
    assert len(told) < 400
    assert told.isprintable()
    message = {"model": asked, "max_tokens": 1, "messages": [{"role": "user", "content": "hi"}]}
    assert len(server.http.post("/v1/messages", json=message).json()["model"]) == 256
    told = server.chat("hi", tool_choice="b" * 100_000).json()["error"]["message"]
    assert len(told) <= 2000
    assert server.http.get("/" + "b" * 5000).json()["error"]["message"].count("b") < 256


@pytest.mark.parametrize("seed", range(5))
def test_any_change_to_a_request_gets_an_answer(server: Server, seed: int) -> None:
    """200 requests, each changed in a few places; what is left incomplete is answered, too."""
    dice = random.Random(seed)
    asked = [mutated(dice) for _ in range(200)]
    with prompt_health(server.port):
        told = asyncio.run(all_answers(server.port, asked))
    statuses = {int(answer[9:12]) for answer in told}
    assert statuses >= {200, 400, 408}
    assert all(status < 500 for status in statuses)


async def all_answers(port: int, asked: list[bytes]) -> list[bytes]:
    """What each connection was answered, read until the server closes it; 30 at a time."""
    turns = asyncio.Semaphore(30)

    async def ask(data: bytes) -> bytes:
        async with turns:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(data)
            try:
                return await reader.read()
            finally:
                writer.close()

    async with asyncio.timeout(30):
        return await asyncio.gather(*map(ask, asked))


def mutated(dice: random.Random) -> bytes:
    """VALID with one to four changes."""
    data = bytearray(VALID)
    for _ in range(dice.randint(1, 4)):
        at = dice.randrange(len(data))
        match dice.randrange(6):
            case 0:
                data[at] = dice.randrange(256)
            case 1:
                del data[at + 1 : at + dice.randint(2, 20)]
            case 2:
                data[at:at] = dice.randbytes(dice.randint(1, 20))
            case 3:
                data[at:at] = dice.choice(
                    [b"\r", b"\n", b"\0", b"\r\n\r\n", b": ", b'"', b"[" * 200, b"\xff"]
                )
            case 4:
                data[at:at] = data[at : at + dice.randint(1, 50)]
            case _:
                del data[at + 1 :]
    return bytes(data)


def test_memory_ends_where_it_began(server: Server) -> None:
    def resident() -> int:
        return int(Path(f"/proc/{server.pid}/statm").read_text().split()[1]) * 4096

    def abuse() -> None:
        for body in BODIES.values():
            send(server.port, post(body[1], CLOSE))
        send(server.port, HEAD + b"Content-Length: 100000000\r\n\r\n" + b"a" * 100_000_000)

    before = resident()
    for _ in range(3):
        abuse()
    assert resident() < before + 160 * MIB  # of a gigabyte that was sent
