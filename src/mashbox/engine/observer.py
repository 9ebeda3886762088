"""Who is told what becomes of requests: the seam between the engine and whoever counts."""

from __future__ import annotations

from typing import Protocol

from mashbox.engine.types import FinishReason, Usage


class Observer(Protocol):
    """Told once each, in this order; a request that is taken ends in one of the last three.

    `seconds` run from the request's arrival. Requests that are refused are not told.
    """

    def started(self, prompt_tokens: int, cached_tokens: int) -> None:
        """A request has a slot; `cached_tokens` of its prompt need not be computed."""
        ...

    def first_text(self, seconds: float) -> None:
        """The first text of an answer has come; some answers have none."""
        ...

    def finished(self, reason: FinishReason, usage: Usage, seconds: float) -> None:
        """A request ended well."""
        ...

    def given_up(self) -> None:
        """Nobody waits for the answer any more."""
        ...

    def failed(self) -> None:
        """A request ended with an error of the engine."""
        ...


class Unobserved:
    """An observer that does nothing."""

    def started(self, prompt_tokens: int, cached_tokens: int) -> None:
        """Nothing."""

    def first_text(self, seconds: float) -> None:
        """Nothing."""

    def finished(self, reason: FinishReason, usage: Usage, seconds: float) -> None:
        """Nothing."""

    def given_up(self) -> None:
        """Nothing."""

    def failed(self) -> None:
        """Nothing."""
