"""The texts both sides are given: some that a model goes on with for ever, and fresh long ones."""

from __future__ import annotations

import random
from pathlib import Path

ENDLESS = (
    "1, 2, 3, 4, 5,",
    "2, 4, 6, 8,",
    "1, 3, 5, 7, 9,",
    "5, 10, 15, 20,",
    "10, 20, 30, 40,",
    "100, 200, 300, 400,",
    "a b c a b c a b c a b c",
    "20, 40, 60, 80,",
)
"""Patterns that go on for hundreds of tokens; `measure.check_complete` stops the run where they do not.

Short ones, so that reading them takes next to nothing of the time in which the answers are written.
"""

TEMPLATE = Path(__file__).with_name("turns.jinja")
"""A chat template for models without one, since each server has a way of its own with them."""

_WORDS = Path(__file__).with_name("words.txt").read_text().split()


def fresh_text(words: int, seed: str) -> str:
    """So many everyday words in an order of this seed's own, from the very first word on.

    The same `words` always gives the same words, so texts of two seeds have about as many tokens.
    """
    chosen = [_WORDS[place % len(_WORDS)] for place in range(words)]
    random.Random(seed).shuffle(chosen)
    return " ".join(chosen)
