"""The process that renders logs like the other two."""

from __future__ import annotations

import json
import socket
import subprocess
import sys

import msgspec

from mashbox.chat.prompt import FormatSource
from mashbox.chat.render_wire import Ask, Broken, Ready, decode_reply, encode_ask
from mashbox.chat.types import ChatRequest, GenerateOptions, Message
from mashbox.config import LogConfig
from mashbox.engine.frames import receive
from mashbox.engine.types import Sampling

BUG = """
from mashbox.chat import render_worker

def build_prompt(chat, request):
    raise ValueError(request.messages[0].content)

render_worker.build_prompt = build_prompt
render_worker.main()
"""


def reply(stream: socket.socket) -> object:
    body = receive(stream)
    assert body is not None
    return decode_reply(body)


def test_a_bug_is_a_line_that_quotes_nothing_of_the_request() -> None:
    ours, theirs = socket.socketpair()
    log = msgspec.json.encode(LogConfig(json=True)).decode()
    request = ChatRequest((Message("user", "secret words"),), GenerateOptions(Sampling()))
    with ours, theirs:
        command = [sys.executable, "-c", BUG, str(theirs.fileno()), "5", log]
        with subprocess.Popen(command, pass_fds=[theirs.fileno()], stderr=subprocess.PIPE) as process:
            theirs.close()
            ours.sendall(encode_ask(FormatSource("{{ messages[0].content }}")))
            assert isinstance(reply(ours), Ready)
            ours.sendall(encode_ask(Ask(request, to_answer=True)))
            assert isinstance(reply(ours), Broken)
            ours.close()
            told = process.communicate(timeout=30)[1]
    (line,) = told.splitlines()
    entry = json.loads(line)
    assert (entry["process"], entry["level"]) == ("templates", "error")
    assert "ValueError" in entry["exception"]
    assert b"secret" not in told
