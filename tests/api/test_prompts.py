"""What a request's tools and earlier calls become on their way to the engine, and how prompts are counted."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

import pytest

from mashbox.chat.formats import plain
from mashbox.chat.service import ChatService
from mashbox.chat.types import (
    ChatRequest,
    GenerateOptions,
    Message,
    Tool,
    ToolCall,
    ToolChoice,
    WholeAnswer,
)
from mashbox.config import ModelConfig, WorkerConfig
from mashbox.engine.client import EngineClient
from mashbox.engine.event_stream import EventStream
from mashbox.engine.supervisor import Supervisor
from mashbox.engine.types import Count, Sampling, Submit
from mashbox.errors import InvalidRequestError, NotReadyError
from tests.api.conftest import Server
from tests.api.serve import format_source

CONTEXT = 2048
TOOL = Tool("look", "Looks it up.", {"type": "object", "properties": {"path": {"type": "string"}}})
DECLARED = {
    "type": "function",
    "function": {"name": TOOL.name, "description": TOOL.description, "parameters": TOOL.parameters},
}
CALL = plain.write_call("look", '{"path": "a b"}')


def prompt_of(server: Server, messages: list[dict[str, Any]], **fields: Any) -> int:
    """The prompt's length; the scripted model's tokens are bytes."""
    answer = server.http.post("/v1/chat/completions", json={"messages": messages} | fields)
    assert answer.status_code == 200, answer.text
    return int(answer.json()["usage"]["prompt_tokens"])


def test_tools_reach_the_prompt(server: Server) -> None:
    messages = [{"role": "user", "content": "hi"}]
    told = len(f"system> {plain.describe([TOOL])}\n".encode())
    assert prompt_of(server, messages) == len("user> hi\n")
    assert prompt_of(server, messages, tools=[DECLARED]) == told + len("user> hi\n")
    assert prompt_of(server, messages, tools=[DECLARED], tool_choice="none") == len("user> hi\n")


@pytest.mark.parametrize("call_id", ["call_1", "a-much-longer-id-of-a-call"])
def test_earlier_calls_and_results_reach_the_prompt_without_their_ids(server: Server, call_id: str) -> None:
    function = {"name": "look", "arguments": '{"path": "a b"}'}
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": None, "tool_calls": [{"id": call_id, "function": function}]},
        {"role": "tool", "tool_call_id": call_id, "content": "R"},
    ]
    expected = f"user> hi\nassistant> {CALL}\nuser> {plain.write_result('look', 'R')}\n"
    assert prompt_of(server, messages) == len(expected)


def test_a_call_in_the_answer_is_read_when_there_are_tools(server: Server) -> None:
    message = server.chat(CALL, tools=[DECLARED]).json()["choices"][0]["message"]
    (call,) = message["tool_calls"]
    assert call["function"] == {"name": "look", "arguments": '{"path": "a b"}'}
    without = server.chat(CALL).json()["choices"][0]["message"]
    assert without["content"] == CALL
    assert "tool_calls" not in without


def test_template_options_cannot_replace_the_tools(server: Server) -> None:
    answer = server.chat("hi", tools=[DECLARED], chat_template_kwargs={"tools": []})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "chat_template_kwargs"


def run(test: Coroutine[Any, Any, None]) -> None:
    async def main() -> None:
        async with asyncio.timeout(20):
            await test

    asyncio.run(main())


class Recorder(EngineClient):
    """Remembers what it is given."""

    def __init__(self, supervisor: Supervisor) -> None:
        super().__init__(supervisor)
        self.commands: list[Submit] = []

    def run(self, stream: EventStream, command: Submit | Count) -> None:
        if isinstance(command, Submit):
            self.commands.append(command)
        super().run(stream, command)


class Running:
    """A chat service with a worker process of its own."""

    def __init__(self, branching: bool = False) -> None:
        self._branching = branching

    async def __aenter__(self) -> ChatService:
        config = WorkerConfig(
            ModelConfig("m", context=CONTEXT, slots=1, threads=1), backend="tests.scripted:ScriptedBackend"
        )
        supervisor = Supervisor(config)
        self.engine = Recorder(supervisor)
        service = ChatService(
            self.engine, lambda facts: replace(format_source(facts), branching=self._branching)
        )
        self._service = service
        self._task = asyncio.create_task(supervisor.run())
        assert (await supervisor.until_settled()).facts is not None
        return service

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self._service.close()


def ask(*messages: Message, **fields: Any) -> ChatRequest:
    return ChatRequest(messages, GenerateOptions(Sampling()), **fields)


REQUESTS = [
    ask(Message("user", "hi")),
    ask(Message("user", "hi"), tools=(TOOL,)),
    ask(Message("user", "hi"), tools=(TOOL,), tool_choice=ToolChoice("none")),
    ask(
        Message("user", "ü"),
        Message("assistant", "", thinking="hm", tool_calls=(ToolCall("x", "look", "{}"),)),
        Message("tool", "R", tool_call_id="x"),
        tools=(TOOL,),
    ),
]


async def answered(service: ChatService, request: ChatRequest) -> WholeAnswer:
    return await (await service.answer(request)).whole()


def test_a_count_is_the_real_requests_prompt() -> None:
    async def test() -> None:
        async with Running() as service:
            for request in REQUESTS:
                counted = await service.count(request)
                assert counted == (await answered(service, request)).done.usage.prompt_tokens

    run(test())


def test_a_count_has_no_limit_and_needs_no_slot() -> None:
    async def test() -> None:
        async with Running() as service:
            answer = await service.answer(ask(Message("user", "[pause]" * 40)))
            await anext(answer)
            long = "x" * 3 * CONTEXT
            assert await service.count(ask(Message("user", long))) == len(f"user> {long}\n")
            assert (await answer.whole()).done.usage.completion_tokens > 40  # was not disturbed

    run(test())


def test_counts_beside_each_other() -> None:
    async def test() -> None:
        async with Running() as service:
            texts = ["x" * n for n in range(50)]
            counts = await asyncio.gather(*(service.count(ask(Message("user", text))) for text in texts))
            assert counts == [len("user> \n") + len(text) for text in texts]

    run(test())


def test_a_count_before_the_model_is_ready() -> None:
    async def test() -> None:
        config = WorkerConfig(ModelConfig("m", context=CONTEXT, slots=1, threads=1))
        service = ChatService(EngineClient(Supervisor(config)), format_source)
        with pytest.raises(NotReadyError):
            await service.count(REQUESTS[0])

    run(test())


def test_what_the_template_refuses_is_not_counted() -> None:
    async def test() -> None:
        async with Running() as service:
            with pytest.raises(InvalidRequestError):
                await service.count(ask(Message("user", "hi"), template_kwargs={"messages": []}))

    run(test())


BRANCHES = (len("system> S\nuser>"), len("system> S\nuser> hi\nassistant> A\nuser>"))


@pytest.mark.parametrize(("branching", "branches"), [(False, ()), (True, BRANCHES)])
def test_the_engine_is_told_where_prompts_branch(branching: bool, branches: tuple[int, ...]) -> None:
    messages = [Message(*said) for said in (("system", "S"), ("user", "hi"), ("assistant", "A"))]

    async def test() -> None:
        running = Running(branching)
        async with running as service:
            await answered(service, ask(*messages, Message("user", "more")))
            assert [command.branches for command in running.engine.commands] == [branches]

    run(test())
