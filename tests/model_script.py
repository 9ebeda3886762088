"""A backend with a real model's tokens that says what a script wants.

The model path names a script, a JSON file that is read anew for every answer:

    {"vocabulary": "/models/some.gguf",
     "rules": [{"when": "regex", "say": "text", "times": 1}, ...]}

The first rule whose `when` is found in the prompt's text (control tokens included) and that has been used
less than `times` times (absent: no limit) gives the answer, token by token. Marks in `say` make it do
things on the way: [[pause 0.5]] takes half a second, [[fail]] raises, [[die]] kills the worker. What was
asked and which rule answered is added to the journal beside the script, so a new worker goes on counting.
"""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from mashbox.config import ModelConfig
from mashbox.engine.backend import Logits
from mashbox.engine.llama import LlamaBackend
from mashbox.engine.types import ModelFacts, Segment
from tests.token_states import TokenStates

TEMPLATE = Path(__file__).with_name("script_template.jinja")
MARK = re.compile(r"(\[\[(?:pause [\d.]+|fail|die)\]\])")
CERTAIN = 100.0
"""Score of the scripted token; all others have 0, so no temperature changes the choice."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One line of a script; see the module."""

    when: str
    say: str
    times: int | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """One line of the journal: a prompt, and the number of the rule that answered it, if any did."""

    rule: int | None
    prompt: str


class Script:
    """A script's file and its journal, for the backend and for the test that writes it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._journal = path.with_suffix(".journal")

    def write(self, vocabulary: Path, rules: Sequence[Rule]) -> None:
        """Replace the script and begin a new journal."""
        self._journal.write_text("")
        content = {"vocabulary": str(vocabulary), "rules": [msgspec.to_builtins(rule) for rule in rules]}
        fresh = self.path.with_suffix(".new")
        fresh.write_text(json.dumps(content))
        fresh.replace(self.path)

    def vocabulary(self) -> str:
        """The model file whose tokens are used."""
        return str(self._read()["vocabulary"])

    def journal(self) -> list[Asked]:
        """Everything that was asked since the script was written."""
        lines = self._journal.read_text().splitlines()
        return [msgspec.json.decode(line, type=Asked) for line in lines]

    def answer(self, prompt: str) -> str:
        """What to say to a prompt. Raises LookupError when no rule fits."""
        rules = [msgspec.convert(rule, Rule) for rule in self._read()["rules"]]
        used = Counter(asked.rule for asked in self.journal())
        chosen = next((n for n, rule in enumerate(rules) if _fits(rule, used[n], prompt)), None)
        with self._journal.open("a") as journal:
            journal.write(json.dumps({"rule": chosen, "prompt": prompt}) + "\n")
        if chosen is None:
            raise LookupError(f"no rule fits the prompt that ends with {prompt[-500:]!r}")
        return rules[chosen].say

    def _read(self) -> Any:
        return json.loads(self.path.read_text())


def _fits(rule: Rule, used: int, prompt: str) -> bool:
    return (rule.times is None or used < rule.times) and re.search(rule.when, prompt, re.DOTALL) is not None


@dataclass(frozen=True, slots=True)
class Said:
    """A token of an answer, and the marks to be obeyed before it comes."""

    token: int
    marks: tuple[str, ...] = ()


def obey(mark: str) -> None:
    """Do what a mark says."""
    match mark.strip("[]").split():
        case ["pause", seconds]:
            time.sleep(float(seconds))
        case ["die"]:
            os.kill(os.getpid(), signal.SIGKILL)
        case _:
            raise RuntimeError("scripted failure")


class ScriptedModel(TokenStates):
    """See the module, and `backend.Backend` for the contract. Its weights are loaded and never used."""

    def __init__(self, config: ModelConfig, progress: Callable[[float], None]) -> None:
        super().__init__(config.slots)
        self._script = Script(Path(config.path))
        small = replace(config, path=self._script.vocabulary(), context=256, slots=1, prefill_rows=64)
        self._model = LlamaBackend(small, progress)
        self.facts: ModelFacts = msgspec.structs.replace(
            self._model.facts,
            context=config.context,
            slots=config.slots,
            widest=config.prefill_rows,
            chat_template=TEMPLATE.read_text(),
        )
        self.vocabulary = self._model.vocabulary
        self._end = self.vocabulary.literals.index(self.facts.eos.encode())
        self._answers: list[Iterator[Said]] = [iter(()) for _ in range(config.slots)]
        self._row = np.zeros((config.slots, self.facts.vocab_size), np.float32)

    def tokenize(self, segments: Sequence[Segment], begins: bool = True) -> list[int]:
        return self._model.tokenize(segments, begins)

    def piece(self, token: int) -> bytes:
        return self._model.piece(token)

    def is_end(self, token: int) -> bool:
        return self._model.is_end(token)

    def prefill(self, slot: int, start: int, tokens: Sequence[int], want_logits: bool) -> Logits | None:
        self.extend(slot, start, tokens)
        if not want_logits:
            return None
        self._answers[slot] = self._say(self._script.answer(self._text(self.held[slot])))
        return self._next(slot)

    def decode(
        self, slots: Sequence[int], positions: Sequence[int], tokens: Sequence[int]
    ) -> Sequence[Logits]:
        for slot, position, token in zip(slots, positions, tokens, strict=True):
            self.extend(slot, position, [token])
        return [self._next(slot) for slot in slots]

    def _text(self, tokens: Sequence[int]) -> str:
        return b"".join(self.vocabulary.literals[token] for token in tokens).decode("utf-8", "replace")

    def _say(self, text: str) -> Iterator[Said]:
        marks: tuple[str, ...] = ()
        for part in MARK.split(text):
            if MARK.fullmatch(part):
                marks += (part,)
            elif part:
                first, *rest = self._model.tokenize([Segment(part, False)], begins=False)
                yield Said(first, marks)
                yield from map(Said, rest)
                marks = ()
        yield Said(self._end, marks)

    def _next(self, slot: int) -> Logits:
        # Sampling may have left the script (a spent thinking budget), so there may be nothing left to say.
        said = next(self._answers[slot], Said(self._end))
        for mark in said.marks:
            obey(mark)
        row: Logits = self._row[slot]
        row[:] = 0.0
        row[said.token] = CERTAIN
        return row
