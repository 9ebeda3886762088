"""From places in a prompt's text to lengths in tokens up to which prompts stay the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

from mashbox.engine.backend import Backend
from mashbox.engine.states import as_tokens, common_length
from mashbox.engine.types import Segment


def branch_lengths(
    backend: Backend, segments: Sequence[Segment], prompt: Sequence[int], branches: Sequence[int]
) -> tuple[int, ...]:
    """The multiples of the grid, 0 aside, that lie before `branches`; ascending.

    `prompt` are the segments' tokens, `branches` characters of their joined texts. What follows a place
    may change the token before it, so that one does not count.
    """
    if not branches:
        return ()
    grid = backend.facts.grid
    whole = _by_bytes(backend, segments, prompt, branches)
    if whole is None:
        whole = [_by_tokens(backend, segments, prompt, place) for place in branches]
    return tuple(sorted({(count - 1) // grid * grid for count in whole if count > grid}))


def _by_bytes(
    backend: Backend, segments: Sequence[Segment], prompt: Sequence[int], branches: Sequence[int]
) -> list[int] | None:
    """How many tokens end at or before each place; None where the tokens do not spell the text.

    A beginning-of-text token or a space that the vocabulary puts before the text may stand in front.
    """
    literals = [backend.vocabulary.literals[token] for token in prompt]
    text = "".join(segment.text for segment in segments)
    data, spelled = _encoded(text), b"".join(literals)
    if not spelled.endswith(data):
        return None
    extra = len(spelled) - len(data)
    borders = [extra + len(_encoded(text[:place])) for place in branches]
    return list(_counts(list(accumulate(map(len, literals))), borders))


def _counts(ends: Sequence[int], borders: Sequence[int]) -> Iterator[int]:
    """For each of the ascending borders, how many of the ascending ends do not lie beyond it."""
    count = 0
    for border in borders:
        while count < len(ends) and ends[count] <= border:
            count += 1
        yield count


def _by_tokens(backend: Backend, segments: Sequence[Segment], prompt: Sequence[int], place: int) -> int:
    """How many tokens the text before a place, by itself, has in common with the prompt."""
    alone = backend.tokenize(list(_cut(segments, place)))
    return common_length(as_tokens(alone), as_tokens(prompt))


def _cut(segments: Sequence[Segment], place: int) -> Iterator[Segment]:
    """The segments' first `place` characters."""
    for segment in segments:
        if place <= 0:
            return
        yield Segment(segment.text[:place], segment.parse_special)
        place -= len(segment.text)


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "replace")
