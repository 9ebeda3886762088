"""A process that renders one chat template: `python -m mashbox.chat.render_worker FD SECONDS LOG`.

The first frame of its stream says which template; each later one is a request, and gets one reply.
It can be killed at any moment: it holds nothing that is not in its template. It ends when the stream
does, and the kernel's own alarm ends a rendering that takes too long, whoever is left to watch.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import socket
import sys
from collections.abc import Iterator

import msgspec

from mashbox.chat.prompt import ChatFormat, Prompt, build_prompt, render
from mashbox.chat.render_wire import (
    Ask,
    Broken,
    Built,
    Ready,
    Refused,
    Reply,
    Unfit,
    decode_ask,
    decode_source,
    encode_reply,
)
from mashbox.config import LogConfig
from mashbox.engine.child import restrain
from mashbox.engine.frames import receive
from mashbox.errors import ConfigError, InvalidRequestError
from mashbox.logs import setup as logs

log = logging.getLogger(__name__)

DEADLINE_S = 5.0
"""Wall time of getting to know the template, and, unless told otherwise, of one rendering."""


@contextlib.contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """After so many seconds inside, the process ends: by a signal, which no code can hold up."""
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def serve(stream: socket.socket, seconds: float) -> None:
    """Until the stream ends."""
    body = receive(stream)
    if body is None:
        return
    with deadline(DEADLINE_S):
        ready, chat = prepare(body)
    stream.sendall(encode_reply(ready))
    while chat is not None and (body := receive(stream)) is not None:
        with deadline(seconds):
            frame = answer(chat, body)
        stream.sendall(frame)


def prepare(body: bytes) -> tuple[Ready | Unfit, ChatFormat | None]:
    """Get to know the template."""
    try:
        chat = decode_source(body).build()
    except ConfigError as error:
        return Unfit(str(error)), None
    return Ready(chat.tools.name), chat


def answer(chat: ChatFormat, body: bytes) -> bytes:
    """The reply's frame."""
    try:
        return encode_reply(_reply(chat, decode_ask(body)))
    except UnicodeEncodeError:  # out of the escapes in a call's arguments
        reason = "The prompt would hold half of a surrogate pair, which is no character."
        return encode_reply(Refused(reason, "messages", "template_error"))
    except RecursionError:
        return encode_reply(Refused("The request is nested too deeply."))
    except MemoryError:
        reason = "The model's chat template fails: it needs too much memory"
        return encode_reply(Refused(reason, "messages", "template_error"))


def _reply(chat: ChatFormat, ask: Ask) -> Reply:
    try:
        if ask.to_answer:
            return Built(build_prompt(chat, ask.request))
        return Built(Prompt(render(chat, ask.request)))
    except InvalidRequestError as error:
        return Refused(str(error), error.param, error.code)
    except (RecursionError, MemoryError):
        raise
    except Exception:
        log.exception("cannot render a request")
        return Broken()


def main() -> None:
    """Entry point; see the module's docstring."""
    restrain(signal.SIGALRM)
    logs.start(msgspec.json.decode(sys.argv[3], type=LogConfig), "templates", errors_wait_s=0.2)
    with contextlib.suppress(ConnectionError):  # the server is gone
        serve(socket.socket(fileno=int(sys.argv[1])), float(sys.argv[2]))


if __name__ == "__main__":
    main()
