"""The worker's inbox: a prompt that takes long to tokenise holds up no cancel and no other answer."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from mashbox.config import ModelConfig
from mashbox.engine import ipc, worker
from mashbox.engine.core import Core
from mashbox.engine.prompt_cache import PromptCache
from mashbox.engine.types import (
    Accepted,
    Cancel,
    Command,
    Constraint,
    Count,
    Counted,
    Invalid,
    Refused,
    Sampling,
    Segment,
    Silent,
    Submit,
    WorkerEvent,
)
from mashbox.engine.worker import Inbox, Outbox
from tests.scripted import ScriptedBackend


class SlowTokenizer(ScriptedBackend):
    """Tokenises when `go` is set, and "quick" at once."""

    def __init__(self) -> None:
        super().__init__(ModelConfig("", context=100, slots=1, threads=1), lambda _: None)
        self.go = threading.Event()
        self.asked = threading.Event()

    def tokenize(self, segments: Sequence[Segment], begins: bool = True) -> list[int]:
        if segments[0].text != "quick":
            self.asked.set()
            assert self.go.wait(5)
        return super().tokenize(segments, begins)


class Line:
    """An inbox with the server's end of its stream."""

    def __init__(self, ours: socket.socket, theirs: socket.socket) -> None:
        self.backend = SlowTokenizer()
        self.left: list[int] = []
        self.inbox = Inbox(theirs, self.backend, Outbox(theirs), leave=self.left.append)
        self.core = Core(self.backend, PromptCache(self.backend, 0, b""), lambda _: None, time.monotonic)
        self._receiver = ipc.EventReceiver(self._take, lambda: None)
        self._ours = ours
        self.said: list[WorkerEvent] = []
        self.inbox.start()

    def _take(self, events: list[WorkerEvent]) -> None:
        self.said += [event for event in events if not isinstance(event, Silent)]

    def send(self, *commands: Command) -> None:
        self._ours.sendall(ipc.encode(commands))

    def until(self, true: Callable[[], bool]) -> None:
        """Read and drain until it is so, at most 5 s."""
        self._ours.settimeout(0.02)
        deadline = time.monotonic() + 5
        while not true():
            assert time.monotonic() < deadline, self.said
            with contextlib.suppress(TimeoutError):
                self._receiver.data_received(self._ours.recv(65536))
            self.inbox.drain(self.core)


@pytest.fixture
def line() -> Iterator[Line]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield Line(ours, theirs)


def submit(name: str, text: str = "hello") -> Submit:
    return Submit(name, (Segment(text, True),), Sampling())


def test_a_cancel_overtakes_the_prompt_being_tokenised(line: Line) -> None:
    line.send(submit("a"), submit("b"))
    assert line.backend.asked.wait(5)
    line.send(Cancel("a"))
    line.until(lambda: "a" not in line.inbox._preparing)
    line.backend.go.set()
    line.until(lambda: line.core.waiting == 1)
    assert line.said == [Accepted("b", 5)]


def test_a_count_can_be_cancelled_and_has_no_limit(line: Line) -> None:
    line.send(Count("a", (Segment("x", True),)), Count("b", (Segment("x", True),)))
    line.send(Count("long", (Segment("x" * 1000, True),)))
    assert line.backend.asked.wait(5)
    line.send(Cancel("a"), Cancel("b"))
    line.until(lambda: line.inbox._preparing == {"long"})
    line.backend.go.set()
    line.until(lambda: not line.inbox._preparing and len(line.said) > 0)
    assert line.said == [Counted("long", 1000)]


def test_a_count_holds_up_no_request(line: Line) -> None:
    line.send(Count("a", (Segment("slow", True),)))
    assert line.backend.asked.wait(5)
    line.send(submit("b", "quick"))
    line.until(lambda: line.said == [Accepted("b", 5)])
    line.backend.go.set()
    line.until(lambda: line.said[1:] == [Counted("a", 4)])


def test_a_grammar_that_does_not_compile_ends_its_request_only(line: Line) -> None:
    line.backend.go.set()
    segments = (Segment("hello", True),)
    line.send(
        Submit("bad", segments, Sampling(), constraint=Constraint(("start: missing",))),
        Submit("good", segments, Sampling(), constraint=Constraint(("start: missing", 'start: "x"'))),
        Submit("long", (Segment("x" * 100, True),), Sampling(), constraint=Constraint(("start: missing",))),
    )
    line.until(lambda: len(line.said) == 3)
    bad, good, long = line.said
    assert isinstance(bad, Invalid)
    assert "missing" in bad.message
    assert (good, long) == (Accepted("good", 5), Refused("long", 100, 100))
    line.until(lambda: line.core.waiting == 1)


def test_the_end_of_the_stream_ends_the_process(line: Line) -> None:
    line._ours.shutdown(socket.SHUT_WR)
    line.until(lambda: line.left == [0])


def test_events_that_cannot_be_sent_end_the_worker() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        left: list[int] = []
        outbox = Outbox(theirs, leave=left.append)
        unsendable: Any = object()
        outbox.post([unsendable])
        outbox.close()
        assert left == [1]


def test_a_reader_that_fails_ends_the_worker_even_when_it_cannot_be_logged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without memory the log fails, too, and a worker that hears nothing but beats is never found."""

    def fail(*arguments: object, **options: object) -> None:
        raise MemoryError

    monkeypatch.setattr(worker.log, "exception", fail)
    monkeypatch.setattr(ipc, "read_commands", fail)
    monkeypatch.setattr(threading, "excepthook", lambda arguments: None)
    left = threading.Event()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        backend = ScriptedBackend(ModelConfig("", context=100, slots=1, threads=1), lambda _: None)
        Inbox(theirs, backend, Outbox(theirs), leave=lambda code: left.set()).start()
        assert left.wait(5)
