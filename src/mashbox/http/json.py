"""JSON answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.responses import Response

JSON = "application/json"


def json_response(value: Any, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """`value` (Structs, dicts, plain values) as the whole body of an answer."""
    return Response(msgspec.json.encode(value), status, headers, JSON)
