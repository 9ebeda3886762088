"""A backend without a model: it answers the prompt's last line with that line.

One token is one byte. Marks in the line make it do things on the way:
[pause] takes 50 ms, [flood] is ten thousand letters in one token, [fail] raises, [die] kills the worker;
[fail once] and [die once] do so the first time only, which needs a model file with an absolute path.
A message that is nothing but [spin] keeps the template busy for minutes.
<|open|>, <|close|> and <|tool|> are control tokens, also in a prompt where they are parsed.
A model file called "slow" takes 60 s to load; one with an absolute path must exist.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from mashbox.config import ModelConfig
from mashbox.engine.backend import Logits, Vocabulary
from mashbox.engine.types import ModelFacts, Segment
from mashbox.errors import ModelFileError
from tests.token_states import TokenStates

END, PAUSE, FLOOD, FAIL, DIE, OPEN, CLOSE, TOOL, FAIL_ONCE, DIE_ONCE = range(256, 266)
CONTROL = {b"<|open|>": OPEN, b"<|close|>": CLOSE, b"<|tool|>": TOOL}
MARKS = {b"[pause]": PAUSE, b"[flood]": FLOOD, b"[fail]": FAIL, b"[die]": DIE} | CONTROL
MARKS |= {b"[fail once]": FAIL_ONCE, b"[die once]": DIE_ONCE}
LITERALS = (
    [bytes([byte]) for byte in range(256)]
    + [b"<|end|>", b"", b"q" * 10_000, b"", b""]
    + [*CONTROL]
    + [b"", b""]
)
CONTROL_MARK = re.compile(b"(" + b"|".join(map(re.escape, CONTROL)) + b")")
MARK = re.compile(b"(" + b"|".join(map(re.escape, MARKS)) + b")")
SPIN = "{{ ([[1] * 1000000] * 1000) | map('sort') | map('length') | sum }}"
TEMPLATE = (
    "{% for message in messages %}{% if message.content == '[spin]' %}" + SPIN + "{% endif %}"
    "{{ message.role }}> {{ message.content }}\n{% endfor %}"
)


def reply(prompt: Sequence[int]) -> list[int]:
    """The tokens a prompt is answered with."""
    text = b"".join(LITERALS[token] for token in prompt).rstrip(b"\n")
    line = text.rpartition(b"\n")[2].rpartition(b"> ")[2]
    tokens: list[int] = []
    for part in MARK.split(line):
        tokens += [MARKS[part]] if part in MARKS else part
    return [*tokens, END]


class ScriptedBackend(TokenStates):
    """See the module. `facts` follow the configuration."""

    def __init__(self, config: ModelConfig, progress: Callable[[float], None]) -> None:
        super().__init__(config.slots)
        if config.path == "slow":
            progress(0.5)
            time.sleep(60)
        if Path(config.path).is_absolute() and not Path(config.path).exists():
            raise ModelFileError(f"{config.path} does not exist.")
        self.facts = ModelFacts(
            context=config.context,
            slots=config.slots,
            grid=64,
            widest=64,
            vocab_size=len(LITERALS),
            longest_piece=1,
            chat_template=TEMPLATE,
            bos="",
            eos="",
            control_tokens=tuple(literal.decode() for literal in CONTROL),
            weight_bytes=1_500_000_000,
            parameters=3_000_000_000,
            description="scripted",
            build="none",
            can_trim=True,
        )
        self.vocabulary = Vocabulary(LITERALS, frozenset([END, *CONTROL.values()]), frozenset([END]))
        self._file = Path(config.path)
        self._replies: list[tuple[int, list[int]]] = [(0, [])] * config.slots
        progress(1.0)

    def tokenize(self, segments: Sequence[Segment], begins: bool = True) -> list[int]:
        tokens: list[int] = []
        for segment in segments:
            text = segment.text.encode()
            parts = CONTROL_MARK.split(text) if segment.parse_special else [text]
            for place, part in enumerate(parts):
                tokens += [CONTROL[part]] if place % 2 else part
        return tokens

    def piece(self, token: int) -> bytes:
        return b"" if token in self.vocabulary.control else LITERALS[token]

    def is_end(self, token: int) -> bool:
        return token == END

    def prefill(self, slot: int, start: int, tokens: Sequence[int], want_logits: bool) -> Logits | None:
        self.extend(slot, start, tokens)
        if not want_logits:
            return None
        self._replies[slot] = (len(self.held[slot]), reply(self.held[slot]))
        return self._next(slot)

    def decode(
        self, slots: Sequence[int], positions: Sequence[int], tokens: Sequence[int]
    ) -> Sequence[Logits]:
        for slot, position, token in zip(slots, positions, tokens, strict=True):
            self.extend(slot, position, [token])
        if PAUSE in tokens:
            time.sleep(0.05)
        return [self._next(slot) for slot in slots]

    def _next(self, slot: int) -> Logits:
        begin, tokens = self._replies[slot]
        # Sampling may have left the script, so the answer may be longer than it.
        token = tokens[min(len(self.held[slot]) - begin, len(tokens) - 1)]
        if token == DIE or (token == DIE_ONCE and self._first_time(token)):
            os.kill(os.getpid(), signal.SIGKILL)
        if token == FAIL or (token == FAIL_ONCE and self._first_time(token)):
            raise RuntimeError(f"scripted failure after {bytes(self.held[slot])!r}")
        logits = np.zeros(self.facts.vocab_size, dtype=np.float32)
        logits[token] = 10.0
        return logits

    def _first_time(self, token: int) -> bool:
        """Whether this mark had no effect yet, in this process or one before it."""
        done = self._file.with_name(f"{self._file.name}.{token}")
        first = not done.exists()
        done.touch()
        return first
