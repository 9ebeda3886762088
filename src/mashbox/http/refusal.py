"""A fault that the connection itself found in a request, on its way to the answer."""

from __future__ import annotations

from starlette.types import Scope

from mashbox.errors import RequestError

_KEY = "mashbox.refusal"


def put_refusal(scope: Scope, error: RequestError) -> None:
    """The request of this scope is to be answered with `error`."""
    scope[_KEY] = error


def raise_refusal(scope: Scope) -> None:
    """Raise what was put there, if anything was."""
    error: RequestError | None = scope.get(_KEY)
    if error is not None:
        raise error
