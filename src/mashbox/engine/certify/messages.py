"""What the gate's process tells, one JSON line each."""

from __future__ import annotations

from typing import BinaryIO, Protocol

import msgspec

from mashbox.config import ModelConfig
from mashbox.engine.certificate import Check

GATE_SLOTS = 8
"""One answer, and seven beside it."""


class GateConfig(msgspec.Struct, frozen=True):
    """What the process is told at its start. `backend` is module:callable; `quick` tries fewer lengths.

    With `float_matrices` the model multiplies with matrices of floats, which compute a lone row otherwise.
    """

    model: ModelConfig
    backend: str = "mashbox.engine.llama:LlamaBackend"
    quick: bool = False
    float_matrices: bool = False


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """The model cannot be loaded; `message` is a plain sentence. Nothing follows."""

    message: str


class Loaded(msgspec.Struct, frozen=True, tag="loaded"):
    """The model is loaded; `build` as in `ModelFacts`."""

    build: str


class Doing(msgspec.Struct, frozen=True, tag="doing"):
    """What is being done now."""

    what: str


class Found(msgspec.Struct, frozen=True, tag="found"):
    """A check has ended."""

    check: Check


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    """All checks have ended; the values are a certificate's."""

    passed: bool
    decode_rows: int
    prefill_rows: int


Message = Refused | Loaded | Doing | Found | Ended


class Say(Protocol):
    """Takes the gate's messages."""

    def __call__(self, message: Message, /) -> None: ...


class Speaker:
    """Writes messages to a pipe; raises BrokenPipeError when nobody reads any more."""

    def __init__(self, pipe: BinaryIO) -> None:
        self._pipe = pipe

    def __call__(self, message: Message) -> None:
        """One line."""
        self._pipe.write(msgspec.json.encode(message) + b"\n")
        self._pipe.flush()
