"""Default mode through the engine's loop: by how much reuse and company change an answer. Only measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mashbox.engine.backend import Backend
from mashbox.engine.certificate import Check
from mashbox.engine.certify.answers import Answer, Loop, compare
from mashbox.engine.certify.exact import ANSWER, TAIL
from mashbox.engine.certify.probe import prompt_of

TURN = 72
"""Tokens that are decoded before a next turn: more than one step of the grid."""


class DefaultAnswers:
    """Cold, lone answers in default mode, and what differs from them."""

    def __init__(self, backend: Backend, lengths: Sequence[int]) -> None:
        self._backend = backend
        self._prompts = [prompt_of(backend, number, length) for number, length in enumerate(lengths)]

    def _alone(self, prompt: Sequence[int], length: int) -> Answer:
        return Loop(self._backend, 0).ask([prompt], length)[0]

    def checks(self) -> list[tuple[str, Callable[[], Check]]]:
        """All measurements with their names, in order."""
        return [("default mode: beside 7", self.beside), ("default mode: next turn", self.next_turns)]

    def beside(self) -> Check:
        """All prompts at one moment against each alone."""
        cold = [self._alone(prompt, ANSWER) for prompt in self._prompts]
        found = Loop(self._backend, 0).ask(self._prompts, ANSWER)
        return _measured("default mode: beside 7", cold, found)

    def next_turns(self) -> Check:
        """Next turns on the state of the turn before, decoded positions included, against cold ones."""
        cold, found = [], []
        for prompt in (min(self._prompts, key=len), max(self._prompts, key=len)):
            loop = Loop(self._backend, 0)
            first = loop.ask([prompt], TURN)[0]
            turn = [*prompt, *first.tokens, *prompt_of(self._backend, 99, TAIL)]
            found += loop.ask([turn], ANSWER)
            cold.append(self._alone(turn, ANSWER))
        return _measured("default mode: next turn", cold, found)


def _measured(name: str, cold: Sequence[Answer], found: Sequence[Answer]) -> Check:
    differences = [compare(*pair) for pair in zip(cold, found, strict=True)]
    places = [difference.token + 1 for difference in differences if difference.token is not None]
    figure = f"{len(places)} of {len(differences)} answers differ"
    if places:
        figure += f", the first at token {min(places)}"
    if failed := sum(answer.failed is not None for answer in found):
        figure += f", {failed} failed"
    largest = max(difference.scores for difference in differences)
    return Check(name, "measured", f"{figure}; scores by up to {largest:.2g}" if largest else f"{figure}")
