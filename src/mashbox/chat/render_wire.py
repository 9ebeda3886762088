"""What crosses between the server and the processes that render: one message in each frame.

Asks are JSON, since schemas may hold numbers of any size; replies are msgpack. Nothing that is read here
can run code, whoever wrote it.
"""

from __future__ import annotations

import msgspec

from mashbox.chat.prompt import FormatSource, Prompt
from mashbox.chat.types import ChatRequest
from mashbox.engine.frames import framed
from mashbox.errors import InvalidRequestError


class Ask(msgspec.Struct, frozen=True):
    """Make this request's prompt; only its segments, unless it is to be answered."""

    request: ChatRequest
    to_answer: bool


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The template is compiled and known; `tools` is the name of the tool format."""

    tools: str


class Unfit(msgspec.Struct, frozen=True, tag="unfit"):
    """The template is no use; `message` is a plain sentence for who started the server."""

    message: str


class Built(msgspec.Struct, frozen=True, tag="built"):
    """The answer to an `Ask`."""

    prompt: Prompt


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """The other answer to an `Ask`: an InvalidRequestError's parts."""

    message: str
    param: str | None = None
    code: str | None = None


class Broken(msgspec.Struct, frozen=True, tag="broken"):
    """The third: a bug, which the process has logged."""


Reply = Ready | Unfit | Built | Refused | Broken

_SOURCES = msgspec.json.Decoder(FormatSource)
_ASKS = msgspec.json.Decoder(Ask)
_REPLIES: msgspec.msgpack.Decoder[Reply] = msgspec.msgpack.Decoder(Reply)


def encode_ask(ask: FormatSource | Ask) -> bytes:
    """One frame to a process. Raises InvalidRequestError for what cannot be written."""
    try:
        return framed(msgspec.json.encode(ask))
    except RecursionError:
        raise InvalidRequestError("The request is nested too deeply.") from None
    except UnicodeEncodeError:
        raise InvalidRequestError("The request holds half a character.") from None


def decode_source(body: bytes) -> FormatSource:
    """A process's first frame."""
    return _SOURCES.decode(body)


def decode_ask(body: bytes) -> Ask:
    """Every other one. Raises RecursionError."""
    return _ASKS.decode(body)


def encode_reply(reply: Reply) -> bytes:
    """One frame to the server. Raises UnicodeEncodeError for half a character."""
    return framed(msgspec.msgpack.encode(reply))


def decode_reply(body: bytes) -> Reply:
    """One frame's message. Raises msgspec.DecodeError."""
    return _REPLIES.decode(body)
