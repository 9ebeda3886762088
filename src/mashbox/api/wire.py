"""The request fields that every generating route shares, declared once.

JSON null always means absent. Fields a route does not declare are ignored.
"""

from __future__ import annotations

import secrets
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from mashbox.chat.types import GenerateOptions
from mashbox.engine.types import Sampling
from mashbox.errors import InvalidRequestError, ModelNotFoundError
from mashbox.http.echo import echo

MAX_INT = 2**63 - 1
MAX_STOP_CHARACTERS = 65_536
"""All stop strings of a request together; each character costs the worker about 300 bytes."""
MAX_MESSAGES = 10_000
"""Messages or input items of a request, and parts or blocks of one message."""
MAX_CALLS = 1_000
"""Calls of one message."""
MAX_TOOLS = 2_000
MAX_ID = 4096
"""Characters of an id that only serves to bring a call and its result together. Some gateways pack much
into theirs."""
SEED_RANGE = range(-(2**63), 2**64)

StopString = Annotated[str, Meta(min_length=1)]
TokenCount = Annotated[int, Meta(ge=1, le=MAX_INT)]
CallId = Annotated[str, Meta(max_length=MAX_ID)]
Penalty = Annotated[float, Meta(ge=-2, le=2)]


class GenerationFields(msgspec.Struct, kw_only=True):
    """How to generate. The sampling fields have the names of `Sampling`."""

    model: str | None = None
    stream: bool | None = None
    max_tokens: TokenCount | None = None
    max_completion_tokens: TokenCount | None = None
    temperature: Annotated[float, Meta(ge=0, le=4)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=0, le=MAX_INT)] | None = None
    min_p: Annotated[float, Meta(ge=0, lt=1)] | None = None
    seed: int | None = None
    repetition_penalty: Annotated[float, Meta(gt=0)] | None = None
    frequency_penalty: Penalty | None = None
    presence_penalty: Penalty | None = None
    stop: StopString | list[StopString] | None = None
    stop_sequences: list[StopString] | None = None
    n: int | None = None
    prompt_cache_key: Any = None

    def options(self, defaults: Sampling) -> GenerateOptions:
        """These fields as engine options; what the client left out comes from `defaults`."""
        return GenerateOptions(
            sampling=self._sampling(defaults),
            stop=self._stop_strings(),
            max_tokens=self.max_completion_tokens or self.max_tokens,
        )

    def _sampling(self, defaults: Sampling) -> Sampling:
        given = {name: getattr(self, name) for name in Sampling.__struct_fields__}
        given["seed"] = unsigned_seed(self.seed)
        return msgspec.structs.replace(
            defaults, **{name: value for name, value in given.items() if value is not None}
        )

    def _stop_strings(self) -> tuple[str, ...]:
        if self.stop is None:
            return _bounded("stop_sequences", tuple(self.stop_sequences or ()))
        return _bounded("stop", (self.stop,) if isinstance(self.stop, str) else tuple(self.stop))


def _bounded(param: str, stop: tuple[str, ...]) -> tuple[str, ...]:
    if sum(map(len, stop)) > MAX_STOP_CHARACTERS:
        raise InvalidRequestError(
            f"'{param}' may have {MAX_STOP_CHARACTERS} characters in all at most.", param=param
        )
    return stop


def unsigned_seed(seed: int | None) -> int:
    """The seed to use: the client's modulo 2**64, or a random one of 32 bits."""
    if seed is None:
        return secrets.randbits(32)
    if seed not in SEED_RANGE:
        raise InvalidRequestError("Invalid value for 'seed': it must fit in 64 bits.", param="seed")
    return seed % 2**64


def check_model(fields: GenerationFields, model_id: str) -> None:
    """Raise ModelNotFoundError when the request names another model than the one that runs."""
    if fields.model is not None and fields.model != model_id:
        raise model_not_found(fields.model, model_id)


def model_not_found(asked: str, model_id: str) -> ModelNotFoundError:
    """The answer to a request for another model."""
    return ModelNotFoundError(
        f"The model '{echo(asked)}' does not run on this server; it runs '{model_id}'.", param="model"
    )


def check_one_answer(fields: GenerationFields) -> None:
    """Refuse `n` other than 1."""
    if fields.n not in (None, 1):
        raise InvalidRequestError("'n' must be 1: this server gives one answer per request.", param="n")


def no_log_probabilities(param: str) -> InvalidRequestError:
    """The answer to a request that sets a log probability field."""
    return InvalidRequestError(f"'{param}' is not supported: no log probabilities are given.", param=param)
