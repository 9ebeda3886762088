"""Grammars on a model's tokens: which may come next, and whether the answer is complete.

Only the worker imports this: it loads llguidance.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import cast

import numpy as np
import numpy.typing as npt
from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper

from mashbox.engine.backend import Backend, Logits
from mashbox.engine.grammar_check import GrammarCheck, first_line, limits
from mashbox.engine.types import Constraint, Segment

MOST_GAP = 2
"""Tokens of white space that may stand between a thinking block and what the grammar describes."""

LONGEST_SILENCE_S = 10.0
"""Half a second for the largest vocabularies, much longer on a busy machine."""

NO_TEXT = b"\xff"
"""The library's sign for a name that is no text."""
LONGEST = 128
"""Bytes of a token that a grammar can use; the library's tables end at 256."""

Bits = npt.NDArray[np.uint32]
"""One bit per token, 32 to a word, the lowest first."""


class GrammarError(Exception):
    """No grammar of a constraint can be compiled; the message is a plain sentence."""


@contextmanager
def no_panic() -> Iterator[None]:
    """A panic of the library is a RuntimeError: as it comes, `except Exception` would not catch it."""
    try:
        yield
    except Exception:
        raise
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise RuntimeError(f"the constraint's matcher failed: {error}") from error


def pack(size: int, tokens: Sequence[int]) -> Bits:
    """The bits of a set of tokens, in whole words for `size` tokens."""
    bits: Bits = np.zeros((size + 31) // 32, np.uint32)
    ids = np.asarray(tokens, np.int64)
    np.bitwise_or.at(bits, ids // 32, np.left_shift(np.uint32(1), (ids % 32).astype(np.uint32)))
    return bits


class Spelling:
    """A vocabulary as the library wants it, and how the model itself would cut a forced text into tokens.

    Control tokens in `visible` are plain text like any other; the rest of them are no text at all.
    """

    def __init__(self, backend: Backend, visible: Collection[str]) -> None:
        vocabulary = backend.vocabulary
        shown = {literal.encode() for literal in visible}
        hidden = {token for token in vocabulary.control if vocabulary.literals[token] not in shown}
        hidden |= vocabulary.ends
        self._backend = backend
        self._visible = visible
        self._literals = vocabulary.literals
        self._singles = {
            literal: token for token, literal in enumerate(vocabulary.literals) if len(literal) == 1
        }
        self.tokens = [
            b"%b<%d>" % (NO_TEXT, token) if token in hidden or len(literal) > LONGEST else literal
            for token, literal in enumerate(vocabulary.literals)
        ]
        self.ends = sorted(vocabulary.ends)
        if not self.ends:
            # The library needs one; beyond the vocabulary it never meets a score.
            self.ends = [len(self.tokens)]
            self.tokens.append(NO_TEXT)
        # What the library asks of a tokeniser.
        self.eos_token_id = self.ends[0]
        self.bos_token_id = None
        self.special_token_ids: list[int] = []
        self.is_tokenizer_wrapper = True

    def __call__(self, text: str) -> list[int]:
        """Tokens whose bytes are `text`. Must not raise: the library would give the grammar up."""
        tokens = self._backend.tokenize(self._segments(text), begins=False)
        data = text.encode()
        if b"".join(self._literals[token] for token in tokens) == data:
            return tokens
        singles = [self._singles.get(data[at : at + 1]) for at in range(len(data))]
        return [token for token in singles if token is not None]

    def _segments(self, text: str) -> list[Segment]:
        """Cut at visible control tokens: only they are parsed."""
        segments = []
        while text:
            at, literal = min(
                ((text.find(literal), literal) for literal in self._visible if literal in text),
                default=(len(text), ""),
            )
            segments += [Segment(text[:at], False), Segment(literal, True)]
            text = text[at + len(literal) :]
        return [segment for segment in segments if segment.text]


class Matcher:
    """One request's way through its grammar. All calls come from the engine's thread."""

    def __init__(self, matcher: LLMatcher, spelling: Spelling) -> None:
        self._matcher = matcher
        self._spelling = spelling
        self._bits = pack(len(spelling.tokens), [])

    def mask(self, logits: Logits, besides: Bits | None = None) -> Logits:
        """A copy of the scores in which tokens that may not come next have -inf.

        Tokens in `besides` may come, too. Raises RuntimeError when a limit of the library is reached.
        """
        bits = self._bits
        with no_panic():
            self._matcher.unsafe_compute_mask_ptr(bits.ctypes.data, bits.nbytes)
        self._check()
        if besides is not None:
            bits |= besides
        allowed = np.unpackbits(bits.view(np.uint8), count=len(logits), bitorder="little")
        return np.where(allowed.view(np.bool_), logits, np.float32(-np.inf))

    def consume(self, token: int) -> None:
        """Go on by a token that the mask allowed. Raises RuntimeError when it did not."""
        with no_panic():
            self._matcher.consume_token(token)
        self._check()

    def takes(self, token: int) -> bool:
        """Go on by a token if the grammar allows it."""
        with no_panic():
            taken: int = self._matcher.try_consume_tokens([token])
        self._check()
        return taken == 1

    def take_text(self, text: str) -> bool:
        """Go on by a text, if the grammar allows all of it."""
        tokens = self._spelling(text)
        with no_panic():
            taken: int = self._matcher.try_consume_tokens(tokens)
            if taken < len(tokens):
                self._matcher.rollback(taken)
        self._check()
        return taken == len(tokens)

    @property
    def stopped(self) -> bool:
        """The grammar is fulfilled and nothing more may come."""
        stopped: bool = self._matcher.is_stopped()
        return stopped

    def _check(self) -> None:
        if self._matcher.is_error():
            raise RuntimeError(f"the constraint's matcher failed: {self._matcher.get_error()}")


class Grammars:
    """Compiles constraints for one model. Building it takes tenths of a second for large vocabularies.

    So does the first request with each other set of visible control tokens: a model's formats have one.
    `silent` is told before the library holds the interpreter for long, and for how many seconds at most.
    """

    def __init__(self, backend: Backend, silent: Callable[[float], object] = lambda seconds: None) -> None:
        self._backend = backend
        self._silent = silent
        self._limits = limits()
        self._check = GrammarCheck()
        self._tokenizers: dict[frozenset[str], tuple[LLTokenizer, Spelling]] = {}
        _, spelling = self._tokenizer(frozenset())
        self.white = pack(
            len(spelling.tokens), [token for token, text in enumerate(spelling.tokens) if text.isspace()]
        )
        """Tokens that are nothing but white space."""

    def compile(self, constraint: Constraint, visible: Collection[str] = ()) -> Matcher:
        """A matcher for the first grammar that compiles and has a first mask.

        `visible` are control tokens the answer may hold; all others are out of the question. Raises
        GrammarError when no grammar will do.
        """
        tokenizer, spelling = self._tokenizer(frozenset(visible))
        fault = "there is none"
        for grammar in constraint.grammars:
            fault = self._check.fault(grammar) or ""
            if not fault:
                try:
                    matcher = self._matcher(tokenizer, grammar)
                except RuntimeError as error:
                    fault = first_line(str(error))
                    continue
                if not matcher.is_error():
                    return Matcher(matcher, spelling)
                fault = first_line(matcher.get_error())
        about = constraint.about or "the answer"
        raise GrammarError(f"The grammar for {about} cannot be compiled: {fault}.")

    def _matcher(self, tokenizer: LLTokenizer, grammar: str) -> LLMatcher:
        with no_panic():
            matcher = LLMatcher(tokenizer, grammar, log_level=0, limits=self._limits)
            # The first mask costs most and shows what is too complex.
            matcher.compute_bitmask()
        return matcher

    def _tokenizer(self, visible: frozenset[str]) -> tuple[LLTokenizer, Spelling]:
        known = self._tokenizers.get(visible)
        if known is None:
            spelling = Spelling(self._backend, visible)
            # Two calls: each holds the interpreter's lock for long, and heartbeats must go on.
            self._silent(LONGEST_SILENCE_S)
            plain = LLTokenizer(
                cast(TokenizerWrapper, spelling),
                n_vocab=len(spelling.tokens),
                eos_token=spelling.ends,
                slices=[],
            )
            self._silent(LONGEST_SILENCE_S)
            tokenizer = plain.with_slices(LLTokenizer.general_slices())
            known = self._tokenizers[visible] = tokenizer, spelling
        return known
