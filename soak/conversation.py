"""One conversation: a code word that only its system prompt and its answers have, and questions for it. Pure.

The questions make a model repeat what lies far back in its prompt, in the part that a cache delivers. So
an answer from another conversation's state names that conversation's word.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from bench.prompts import fresh_text

from soak.markers import Markers

Message = tuple[str, str]
"""Who speaks, and what."""

QUESTION = "What is the code word?"


@dataclass(frozen=True, slots=True)
class Lengths:
    """Words of filling text: in system prompts, shared or not, and in a question at most."""

    system: int
    question: int


@dataclass(frozen=True, slots=True)
class Family:
    """What the system prompts of several conversations begin with."""

    text: str

    @staticmethod
    def new(name: str, lengths: Lengths, markers: Markers) -> Family:
        """A text of its own, with a word of its own."""
        return Family(f"You work for {markers.new()}. {fresh_text(lengths.system, name)}.")


@dataclass(slots=True)
class Turn:
    """A question and its answer, once there is one."""

    question: str
    answer: str | None = None


@dataclass(slots=True)
class Conversation:
    """Grows by one turn at a time; only the last turn may lack its answer."""

    name: str
    word: str
    system: str
    lengths: Lengths
    markers: Markers
    turns: list[Turn] = field(default_factory=list)

    @staticmethod
    def new(name: str, family: Family | None, lengths: Lengths, markers: Markers) -> Conversation:
        """One that has a first turn, so that the model sees how answers look."""
        word = markers.new()
        start = (family or Family.new(name, lengths, markers)).text
        conversation = Conversation(name, word, f"{start} The code word is {word}.", lengths, markers)
        first = conversation._question(random.Random(name), note=False)
        conversation.turns.append(Turn(first, f"The code word is {word}."))
        return conversation

    @property
    def messages(self) -> tuple[Message, ...]:
        """The prompt as it stands."""
        said: list[Message] = [("system", self.system)]
        for turn in self.turns:
            said.append(("user", turn.question))
            if turn.answer is not None:
                said.append(("assistant", turn.answer))
        return tuple(said)

    @property
    def answered(self) -> bool:
        """Whether it is the user's turn."""
        return self.turns[-1].answer is not None

    def ask(self, pick: random.Random) -> None:
        """A new question, unless one is open: then that one is asked again."""
        if self.answered:
            self.turns.append(Turn(self._question(pick, note=pick.random() < 0.5)))

    def ask_again(self) -> None:
        """Take back the last answer."""
        self.turns[-1].answer = None

    def edit(self, pick: random.Random) -> None:
        """Take back the last answer, and ask something else in place of its question."""
        self.turns[-1] = Turn(self._question(pick, note=pick.random() < 0.5))

    def answer(self, text: str) -> None:
        """What was said to the open question."""
        self.turns[-1].answer = text

    def _question(self, pick: random.Random, note: bool) -> str:
        filling = fresh_text(pick.randint(3, self.lengths.question), str(pick.random()))
        name = f"I am {self.markers.new().title()}. " if note else ""
        return f"{name}{filling}. {QUESTION}"
