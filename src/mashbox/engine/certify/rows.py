"""Which numbers of rows in one decode call give each row the same scores."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import islice

from mashbox.engine.certificate import Check
from mashbox.engine.certify.probe import Probe

NAME = "decode calls"
MOST_ROWS = 8

Digests = dict[int, list[list[bytes]]]
"""Number of rows -> per scene, a digest of each row's scores; for 1 row, each slot had a call of its own."""


def find_classes(probe: Probe, lengths: Sequence[int], floats: bool) -> tuple[int, Check]:
    """The largest r for which calls of 1 to r rows give the same scores, at ascending context lengths.

    Where the model multiplies with matrices of `floats` it is 1: they compute a lone row otherwise, and the
    rounding of quantised ones after them hides it in 999 of 1,000 rows.

    A scene is what lies in the slots: the same length in all, and last all lengths side by side.
    """
    images = _images(probe, lengths)
    slots = min(MOST_ROWS, probe.backend.facts.slots)
    scenes = [[length] * slots for length in lengths]
    scenes.append([lengths[slot % len(lengths)] for slot in range(slots)])
    digests: Digests = {rows: [] for rows in range(1, slots + 1)}
    for scene in scenes:
        _play(probe, scene, images, digests)
    classes = _classes(digests)
    first = classes[0]
    together = next((rows for rows in range(1, slots + 1) if rows not in first), slots + 1) - 1
    shown = " | ".join(_spans(group) for group in classes)
    if floats and together > 1:
        together = 1
        shown += ", as far as seen: matrices of floats compute a lone row otherwise"
    figure = f"rows a call that compute the same: {shown}; exact mode uses up to {together}"
    return together, Check(NAME, "measured", figure)


def _images(probe: Probe, lengths: Sequence[int]) -> dict[int, bytearray]:
    """The state of each length, one after another out of one prefill."""
    probe.empty()
    images: dict[int, bytearray] = {}
    done = 0
    for length in lengths:
        probe.fill(0, done, length)
        images[length] = probe.save(0)
        done = length
    return images


def _play(probe: Probe, scene: list[int], images: dict[int, bytearray], digests: Digests) -> None:
    for slot, length in enumerate(scene):
        probe.put(slot, images[length])
    slots = list(range(len(scene)))
    digests[1].append([_decode(probe, [slot], scene, images)[0] for slot in slots])
    for rows in slots[1:]:
        digests[rows + 1].append(_decode(probe, slots[: rows + 1], scene, images))


def _decode(
    probe: Probe, slots: Sequence[int], scene: list[int], images: dict[int, bytearray]
) -> list[bytes]:
    """Digests of the scores of one call; each row has a token of its own. The slots are as before."""
    lengths = [scene[slot] for slot in slots]
    rows = probe.backend.decode(slots, lengths, [probe.tokens[7 * slot + 1] for slot in slots])
    found = [hashlib.blake2b(row.tobytes(), digest_size=16).digest() for row in rows]
    for slot, length in zip(slots, lengths, strict=True):
        probe.back(slot, length, images[length])
    return found


def _classes(digests: Digests) -> list[list[int]]:
    """Numbers of rows that compute the same, together."""
    classes: list[list[int]] = []
    for rows in digests:
        for group in classes:
            if _agree(digests[group[0]], digests[rows]):
                group.append(rows)
                break
        else:
            classes.append([rows])
    return classes


def _agree(first: list[list[bytes]], second: list[list[bytes]]) -> bool:
    """Whether the rows that both have are the same in every scene."""
    pairs = zip(first, second, strict=True)
    return all(list(islice(a, len(b))) == list(islice(b, len(a))) for a, b in pairs)


def _spans(numbers: list[int]) -> str:
    """Ascending numbers as a reader likes them: 1-3, 5."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and spans[-1][-1] == number - 1:
            spans[-1].append(number)
        else:
            spans.append([number])
    return ", ".join(str(span[0]) if len(span) == 1 else f"{span[0]}-{span[-1]}" for span in spans)
