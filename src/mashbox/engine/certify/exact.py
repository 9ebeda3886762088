"""Exact mode through the engine's loop: the same answer, whatever came before or is beside it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mashbox.engine.backend import Backend
from mashbox.engine.certificate import Check
from mashbox.engine.certify.answers import Answer, Loop, compare
from mashbox.engine.certify.probe import prompt_of

ANSWER = 16
"""Tokens of each answer."""
TAIL = 70
"""Tokens that a follow-up's prompt adds."""
OTHERS = 100
"""From this number on, stories are for displacing only."""


class ExactAnswers:
    """The cold answers, computed once, and the checks against them."""

    def __init__(self, backend: Backend, lengths: Sequence[int]) -> None:
        self._backend = backend
        self._prompts = [prompt_of(backend, number, length) for number, length in enumerate(lengths)]
        self._longest = max(self._prompts, key=len)
        slots, short = backend.facts.slots, backend.facts.grid + 6
        self._others = [
            [prompt_of(backend, first + slot, short) for slot in range(slots)]
            for first in (OTHERS, OTHERS + slots)
        ]
        self._cold = [self._alone(prompt) for prompt in self._prompts]
        self._turns = [self._longest + prompt_of(backend, OTHERS - place, TAIL) for place in (1, 2)]
        self._cold_turns = [self._alone(turn) for turn in self._turns]
        # The last turn still lies in a slot: the largest state that comes up here.
        self._state_bytes = max(backend.state_size(slot, False) for slot in range(slots))

    def _alone(self, prompt: Sequence[int]) -> Answer:
        return Loop(self._backend, 0).ask([prompt], ANSWER)[0]

    def _loop(self, branch: int = 0) -> Loop:
        """With room for all states that a check has."""
        return Loop(self._backend, 8 * self._state_bytes + (64 << 20), branch)

    @property
    def _longest_cold(self) -> Answer:
        return self._cold[self._prompts.index(self._longest)]

    def checks(self) -> list[tuple[str, Callable[[], Check]]]:
        """All checks with their names, in order."""
        return [
            ("beside 7 others", self.beside),
            ("again in its slot", self.again),
            ("a next turn", self.next_turn),
            ("taken over from another slot", self.taken_over),
            ("restored from host memory", self.restored),
            ("after eviction", self.evicted),
        ]

    def beside(self) -> Check:
        """All prompts come at one moment."""
        return self._check("beside 7 others", self._cold, self._loop().ask(self._prompts, ANSWER))

    def again(self) -> Check:
        """The same prompts a second time."""
        loop = self._loop()
        loop.ask(self._prompts, ANSWER)
        found = [loop.ask([prompt], ANSWER)[0] for prompt in self._prompts]
        return self._check("again in its slot", self._cold, found, reuses=True)

    def next_turn(self) -> Check:
        """A prompt that goes on where one before it ended; the answer between them was decoded."""
        loop = self._loop()
        first = loop.ask([self._longest], ANSWER)[0]
        turn = [*self._longest, *first.tokens, *self._turns[0][-TAIL:]]
        found = loop.ask([turn], ANSWER)
        return self._check("a next turn", [self._alone(turn)], found, reuses=True)

    def taken_over(self) -> Check:
        """Two prompts with one beginning at one moment, and one that comes while another is answered."""
        name = "taken over from another slot"
        first, second = self._turns
        grid = self._backend.facts.grid
        branch = len(self._longest) // grid * grid
        together = self._loop(branch).ask([first, second], ANSWER)
        apart = self._loop(branch).ask_beside(first, second, ANSWER)
        if not (together[1].cached and apart[1].cached):
            return Check(name, "failed", "no state was taken over")
        return self._check(name, self._cold_turns * 2, [*together, *apart], reuses=True)

    def restored(self) -> Check:
        """After as many others as there are slots."""
        loop = self._loop()
        self._displace(loop, rounds=1)
        found = loop.ask([self._longest], ANSWER)
        return self._check("restored from host memory", [self._longest_cold], found, reuses=True)

    def evicted(self) -> Check:
        """With just the room that the prompt's state and one round of others need; a second one takes it."""
        name = "after eviction"
        roomy = self._loop()
        self._displace(roomy, rounds=1)
        tight = Loop(self._backend, roomy.held)
        self._displace(tight, rounds=2)
        found = tight.ask([self._longest], ANSWER)
        if not tight.evictions:
            return Check(name, "failed", "nothing was evicted")
        return self._check(name, [self._longest_cold], found)

    def _displace(self, loop: Loop, rounds: int) -> None:
        """The longest prompt, then as many others as there are slots, once or more."""
        loop.ask([self._longest], ANSWER)
        for others in self._others[:rounds]:
            loop.ask(others, 2)

    def _check(
        self, name: str, cold: Sequence[Answer], found: Sequence[Answer], reuses: bool = False
    ) -> Check:
        for expected, answer in zip(cold, found, strict=True):
            if failed := expected.failed or answer.failed:
                return Check(name, "failed", failed)
            difference = compare(expected, answer)
            if difference.token is not None:
                return Check(name, "failed", f"token {difference.token + 1} of an answer is another one")
            if difference.bits:
                return Check(name, "failed", f"scores differ by up to {difference.scores:.2g}")
        cached = sum(answer.cached for answer in found)
        if reuses and not cached:
            return Check(name, "failed", "no state was used again")
        figure = f"{len(found)} of {len(found)} answers the same to the bit"
        return Check(name, "passed", figure + (f", {cached} prompt tokens cached" if reuses else ""))
