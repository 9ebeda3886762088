"""Decodes one entry of a list whose entries come in many types, telling where a fault is."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from mashbox.errors import InvalidRequestError
from mashbox.http.body import invalid_field

T = TypeVar("T")


def convert(entry: dict[str, Any], kind: type[T], where: str) -> T:
    """`entry`, found at `where` in the body, as a `kind`. Raises InvalidRequestError naming the field."""
    try:
        return msgspec.convert(entry, kind)
    except msgspec.ValidationError as error:
        raise invalid_field(str(error), where) from None


def type_of(entry: dict[str, Any], where: str, absent: str | None = None) -> str:
    """The `type` of `entry`; `absent` is what counts when it has none. Raises InvalidRequestError."""
    kind = entry.get("type")
    kind = absent if kind is None else kind
    if isinstance(kind, str):
        return kind
    param = f"{where}.type"
    if kind is None:
        raise InvalidRequestError(f"Missing required field '{param}'.", param=param)
    raise InvalidRequestError(f"Invalid value for '{param}': expected string.", param=param)
