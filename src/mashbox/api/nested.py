"""Decodes one entry of a list whose entries come in many types, telling where a fault is."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from mashbox.http.body import invalid_field

T = TypeVar("T")


def convert(entry: dict[str, Any], kind: type[T], where: str) -> T:
    """`entry`, found at `where` in the body, as a `kind`. Raises InvalidRequestError naming the field."""
    try:
        return msgspec.convert(entry, kind)
    except msgspec.ValidationError as error:
        raise invalid_field(_located(str(error), where)) from None


def _located(message: str, where: str) -> str:
    """msgspec's message with its path, which begins at the entry, made one that begins at the body."""
    what, found, path = message.rpartition(" - at `$")
    return f"{what} - at `$.{where}{path}" if found else f"{message} - at `$.{where}`"
