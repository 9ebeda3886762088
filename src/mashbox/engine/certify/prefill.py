"""How many tokens one prefill call may have without changing what it computes."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from mashbox.engine.certificate import Check
from mashbox.engine.certify.probe import Probe

NAME = "prefill calls"


def find_width(probe: Probe, widths: Sequence[int], length: int) -> tuple[int, Check]:
    """The largest of the ascending `widths` up to which all calls compute what calls of one chunk do.

    Compared are whole states and the scores after them: each width in a call behind one chunk, then the
    accepted one over `length` tokens.
    """
    grid = probe.grid
    widths = [width for width in widths if grid + width <= length]
    narrow = {width: _state(probe, grid + width, grid) for width in widths}
    equal = [width for width in widths if _state(probe, grid + width, width) == narrow[width]]
    accepted = grid
    for width in widths:
        if width not in equal:
            break
        accepted = width
    if accepted > grid and _state(probe, length, accepted) != _state(probe, length, grid):
        accepted = grid
    figure = f"up to {accepted} tokens a call compute the same as {grid}"
    if others := [str(width) for width in widths if width not in equal]:
        figure += f"; calls of {', '.join(others)} do not"
    return accepted, Check(NAME, "measured", figure)


def _state(probe: Probe, length: int, width: int) -> bytes:
    """A digest of all that prefilling so many tokens leaves: a first chunk, then calls of `width`."""
    probe.empty()
    probe.fill(0, 0, min(probe.grid, length))
    logits = probe.fill(0, probe.grid, length, width)
    digest = hashlib.blake2b(probe.save(0))
    digest.update(logits.tobytes())
    return digest.digest()
