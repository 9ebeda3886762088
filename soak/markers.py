"""Words that exist only once, so that text of one conversation is known wherever it turns up. Pure."""

from __future__ import annotations

import random
from collections.abc import Iterable

_CONSONANTS = "bdfgklmnprstvz"
_VOWELS = "aeiou"
_SYLLABLES = 4
"""70 to the fourth, 24 million words: that a model makes up one of a few thousand is out of the question."""


class Markers:
    """Gives out words, each once, and finds them again."""

    def __init__(self, seed: int) -> None:
        self._pick = random.Random(f"markers {seed}")
        self._given: dict[str, None] = {}

    def new(self) -> str:
        """A word nobody has had."""
        word = self._word()
        while word in self._given:
            word = self._word()
        self._given[word] = None
        return word

    def found_in(self, text: str) -> set[str]:
        """The given words that stand in a text, in any case of letters and also inside of longer words."""
        lower = text.lower()
        return {word for word in self._given if word in lower}

    def strangers(self, answer: str, prompt: Iterable[str]) -> set[str]:
        """The given words that an answer has and no part of its prompt."""
        known = "\n".join(prompt).lower()
        return {word for word in self.found_in(answer) if word not in known}

    def _word(self) -> str:
        return "".join(self._pick.choice(_CONSONANTS) + self._pick.choice(_VOWELS) for _ in range(_SYLLABLES))
