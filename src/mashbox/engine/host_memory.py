"""Host memory for states: one mapping whose size is the cap, so that it cannot be passed.

Places are taken first fit and given back whole. Pages that were used stay with the process: saving into
memory that is already there takes a tenth of the time.
"""

from __future__ import annotations

import contextlib
import mmap
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass

_PAGE = mmap.PAGESIZE
_NORESERVE = 0x4000  # Linux's MAP_NORESERVE: pages count when they are first used


Room = tuple[int, int]
"""Where something taken lies: its offset, and its bytes in whole pages."""


@dataclass(slots=True, eq=False)
class Image:
    """A state's bytes in host memory, `size` of them. It is freed when the last of its holders lets go of it.

    `length` is in tokens, `positions` the first and last one in the state. `checksum` binds them, the
    tokens and the bytes together; see `state_store`.
    """

    offset: int
    room: int
    """Bytes taken, bookkeeping included."""
    size: int
    partial: bool
    length: int
    positions: tuple[int, int]
    checksum: int = 0
    holders: int = 1


def _mapping(size: int) -> mmap.mmap:
    """In huge pages where the system has them: a first save then takes a third of the time."""
    mapping = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE)
    with contextlib.suppress(OSError):
        mapping.madvise(mmap.MADV_HUGEPAGE)
    return mapping


class HostMemory:
    """`cap` bytes, of which `used` are taken."""

    def __init__(self, cap: int) -> None:
        self.cap = cap // _PAGE * _PAGE
        self.used = 0
        self._map = _mapping(self.cap) if self.cap else None
        self._holes: list[tuple[int, int]] = [(0, self.cap)] if self.cap else []
        """Offset and size of what is free, in order, never adjacent."""

    def take(self, size: int) -> Room | None:
        """Room for `size` bytes; None when no hole is that large."""
        room = -(-size // _PAGE) * _PAGE
        for number, (offset, hole) in enumerate(self._holes):
            if hole >= room:
                self._holes[number : number + 1] = [(offset + room, hole - room)] if hole > room else []
                self.used += room
                return offset, room
        return None

    def would_fit(self, room: int, without: Iterable[Image]) -> bool:
        """Whether there were a place for `room` bytes without some images."""
        end = size = 0
        for offset, more in sorted([*self._holes, *((image.offset, image.room) for image in without)]):
            size = size + more if offset == end else more
            end = offset + more
            if size >= room:
                return True
        return False

    def release(self, image: Image) -> None:
        """One holder less."""
        image.holders -= 1
        assert image.holders >= 0
        if image.holders == 0:
            self._give_back(image.offset, image.room)

    def _give_back(self, offset: int, room: int) -> None:
        self.used -= room
        at = bisect_left(self._holes, (offset, 0))
        first, last, end = at, at, offset + room
        if at and sum(self._holes[at - 1]) == offset:
            first, offset = at - 1, self._holes[at - 1][0]
        if at < len(self._holes) and self._holes[at][0] == end:
            last, end = at + 1, sum(self._holes[at])
        self._holes[first:last] = [(offset, end - offset)]

    def view(self, offset: int, size: int) -> memoryview:
        """The bytes of a place that was taken."""
        assert self._map is not None
        return memoryview(self._map)[offset : offset + size]
