"""A state that was saved, restored or cut goes on exactly like one that was not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from mashbox.engine.backend import Logits
from mashbox.engine.certificate import Check
from mashbox.engine.certify.probe import Probe, distance, same

RESTORE, OFF_GRID = "save and restore", "restore off the grid"
CUT, SNAPSHOT = "cut back", "snapshots"
DECODED = 3
"""Tokens decoded after each state."""


def check_restore(probe: Probe, lengths: Sequence[int]) -> Check:
    """To another slot, which was used before, and back: the same bytes, and the same scores after."""
    return _check(RESTORE, lengths, lambda length: _after_restore(probe, length), "the same bytes and scores")


def measure_off_grid(probe: Probe, lengths: Sequence[int]) -> Check:
    """The same at lengths that exact mode does not restore where states cannot be cut."""
    check = check_restore(probe, lengths)
    return Check(OFF_GRID, "measured", check.figure)


def _after_restore(probe: Probe, length: int) -> str | None:
    probe.empty()
    probe.fill(0, 0, length)
    image = probe.save(0)
    expected = _go_on(probe, 0, length)
    probe.fill(1, 0, probe.grid + 1)
    probe.put(1, image)
    # An image says which slot it is of, so that only those of one slot can be equal.
    probe.put(0, probe.save(1))
    if probe.save(0) != image:
        return "the image of the restored state has other bytes"
    there, back = _go_on(probe, 1, length), _go_on(probe, 0, length)
    return _difference(expected, there) or _difference(expected, back)


def check_cut(probe: Probe, lengths: Sequence[int]) -> Check:
    """A state that was longer and is cut back; where none can be, there is nothing to be wrong."""
    refused = 0

    def compare(length: int) -> str | None:
        nonlocal refused
        probe.empty()
        probe.fill(0, 0, length)
        expected = _go_on(probe, 0, length)
        if not probe.backend.trim(0, length):
            refused += 1
            return None
        return _difference(expected, _go_on(probe, 0, length))

    found = _check(CUT, lengths, compare, "the same scores")
    if found.outcome == "passed" and refused == len(lengths):
        return Check(found.name, "passed", "this model's states are never cut back, they are restored")
    return found


def check_snapshot(probe: Probe, lengths: Sequence[int]) -> Check:
    """A partial image put back onto a state that went on meanwhile, which is then cut."""

    def compare(length: int) -> str | None:
        probe.empty()
        probe.fill(0, 0, length)
        snapshot = probe.save(0, partial=True)
        expected = _go_on(probe, 0, length)
        probe.backend.restore(0, True, memoryview(snapshot))
        if not probe.backend.trim(0, length):
            return "the state cannot be cut to its snapshot"
        return _difference(expected, _go_on(probe, 0, length))

    return _check(SNAPSHOT, lengths, compare, "the same scores")


def _go_on(probe: Probe, slot: int, length: int) -> list[Logits]:
    """The scores of the text's next chunk, and of some decoded tokens."""
    end = (length // probe.grid + 2) * probe.grid
    return [probe.fill(slot, length, end), *(probe.step(slot, end + place) for place in range(DECODED))]


def _difference(expected: list[Logits], found: list[Logits]) -> str | None:
    for place, (first, second) in enumerate(zip(expected, found, strict=True)):
        if not same(first, second):
            where = "after prefill" if place == 0 else f"of decoded token {place}"
            return f"the scores {where} differ by {distance(first, second):.2g}"
    return None


def _check(name: str, lengths: Sequence[int], compare: Callable[[int], str | None], figure: str) -> Check:
    for length, difference in _differences(lengths, compare):
        if difference is not None:
            return Check(name, "failed", f"at {length} tokens {difference}")
    return Check(name, "passed", f"{figure}, at {', '.join(map(str, lengths))} tokens")


def _differences(
    lengths: Sequence[int], compare: Callable[[int], str | None]
) -> Iterator[tuple[int, str | None]]:
    for length in lengths:
        try:
            yield length, compare(length)
        except RuntimeError as error:
            yield length, f"the library refuses: {error}"
