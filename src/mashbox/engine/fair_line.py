"""A waiting line in which tenants take turns. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar


class Owned(Protocol):
    """Something that waits."""

    @property
    def tenant(self) -> str: ...


T = TypeVar("T", bound=Owned)


class FairLine(Generic[T]):
    """One line per tenant, first come, first served; the tenants' turns go round.

    Invariant: no line is empty; the first of the dict has the next turn.
    """

    def __init__(self) -> None:
        self._lines: dict[str, list[T]] = {}

    def __len__(self) -> int:
        return sum([len(line) for line in self._lines.values()])

    def __iter__(self) -> Iterator[T]:
        """In the order in which they would be taken if each could be, but with one tenant after the other."""
        for line in self._lines.values():
            yield from line

    def add(self, item: T) -> None:
        """At the end of its tenant's line."""
        self._lines.setdefault(item.tenant, []).append(item)

    def take(self, item: T) -> None:
        """It had its tenant's turn."""
        self.remove(item)
        if (line := self._lines.pop(item.tenant, None)) is not None:
            self._lines[item.tenant] = line

    def remove(self, item: T) -> None:
        """It waits no more, and its tenant's turn does not change."""
        line = self._lines[item.tenant]
        line.remove(item)
        if not line:
            del self._lines[item.tenant]
