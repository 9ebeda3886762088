"""What the interface must have, as two tables of facts beside this module."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ABSENT = object()


@dataclass(frozen=True)
class FieldRow:
    """One field of a request body (`place` is a route) or of a named schema."""

    place: str
    name: str
    kind: str
    default: Any
    required: bool
    ignored: bool

    @property
    def of_request(self) -> bool:
        return self.place.startswith("POST ")

    def __str__(self) -> str:
        return f"{self.place} {self.name}"


@dataclass(frozen=True)
class StatusRow:
    """One status of a route, and the schema of each media type."""

    route: str
    status: str
    bodies: dict[str, str | None]

    def __str__(self) -> str:
        return f"{self.route} {self.status}"


def field_rows() -> list[FieldRow]:
    return [
        FieldRow(
            place,
            name,
            kind,
            json.loads(default) if default else ABSENT,
            required == "required",
            bool(ignored),
        )
        for place, name, kind, default, required, ignored in cells("fields.txt", 6)
    ]


def status_rows() -> list[StatusRow]:
    return [StatusRow(route, status, media(bodies)) for route, status, bodies in cells("statuses.txt", 3)]


def media(bodies: str) -> dict[str, str | None]:
    """ "application/json Health text/plain" as a mapping; a media type without a name has any schema."""
    found: dict[str, str | None] = {}
    for word in bodies.split():
        if "/" in word:
            found[word] = None
        else:
            found[next(reversed(found))] = word
    return found


def cells(name: str, count: int) -> list[list[str]]:
    lines = Path(__file__).with_name(name).read_text().splitlines()
    rows = [[cell.strip() for cell in line.split("|")] for line in lines if not line.startswith("#")]
    return [row + [""] * (count - len(row)) for row in rows]
