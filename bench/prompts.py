"""The texts both sides are given: some that a model goes on with for ever, and fresh long ones."""

from __future__ import annotations

import random
from pathlib import Path

ENDLESS = (
    "Count: 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17,",
    "Even numbers: 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30,",
    "Odd numbers: 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29,",
    "Multiples of five: 5, 10, 15, 20, 25, 30, 35, 40, 45, 50, 55, 60, 65,",
    "a b c a b c a b c a b c a b c a b c a b c a b c a b c a b c a b c",
    "Tens: 10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 110, 120, 130, 140, 150,",
    "Monday, Tuesday, Wednesday, Thursday, Friday, Saturday, Sunday, Monday, Tuesday, Wednesday,",
    "Hundreds: 100, 200, 300, 400, 500, 600, 700, 800, 900, 1000, 1100, 1200,",
)
"""Patterns that go on for hundreds of tokens; `measure.check_complete` stops the run where they do not."""

_WORDS = Path(__file__).with_name("words.txt").read_text().split()


def fresh_text(words: int, seed: str) -> str:
    """So many everyday words in an order of this seed's own, from the very first word on.

    The same `words` always gives the same words, so texts of two seeds have about as many tokens.
    """
    chosen = [_WORDS[place % len(_WORDS)] for place in range(words)]
    random.Random(seed).shuffle(chosen)
    return " ".join(chosen)
