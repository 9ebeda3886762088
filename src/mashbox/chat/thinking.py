"""How models mark their thinking, and whether a prompt ends inside of it."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

_PAIRS = (
    ("<|channel|>analysis<|message|>", "<|end|>"),  # gpt-oss
    ("<|channel>thought\n", "<channel|>"),  # Gemma 4
    ("<think>", "</think>"),  # Qwen, DeepSeek, GLM, SmolLM3, MiniMax, Kimi K2, Hunyuan, Nemotron
    ("[THINK]", "[/THINK]"),  # Magistral, Ministral
    ("<seed:think>", "</seed:think>"),  # Seed-OSS
    ("<mm:think>", "</mm:think>"),  # MiniMax M3
    ("<|START_THINKING|>", "<|END_THINKING|>"),  # Command A Reasoning
    ("<|inner_prefix|>", "<|inner_suffix|>"),  # Apertus
    ("◁think▷", "◁/think▷"),  # Kimi
    ("<thought>", "</thought>"),  # EXAONE Deep
)


@dataclass(frozen=True, slots=True)
class Marks:
    """One model's thinking marks.

    `opening` and `closing` are the marks with the white space the model puts around them.
    `known` says that the template speaks of them; else they only stand in the model's vocabulary.
    `words` says that they are ordinary text to the model, so that it may write them without thinking.
    """

    opener: str
    closer: str
    opening: str
    closing: str
    known: bool = True
    words: bool = False


def find_marks(template_source: str, control_tokens: Collection[str]) -> Marks | None:
    """The marks in a template's source, else a pair that is in the vocabulary; None: it does not think.

    A template may only cut thinking out, so the closer alone is enough, unless it is no word of its own.
    """
    source = template_source.replace("\\n", "\n")
    for opener, closer in _PAIRS:
        if _stem(opener) in source or ("think" in closer.lower() and closer in source):
            words = not any(token in opener for token in control_tokens)
            return Marks(
                opener, closer, _opening(source, opener), _closing(source, opener, closer), words=words
            )
    for opener, closer in _PAIRS:
        if opener in control_tokens and closer in control_tokens:
            return Marks(opener, closer, f"{opener}\n", f"\n{closer}\n\n", known=False)
    return None


def ends_inside(prompt_text: str, marks: Marks) -> bool:
    """Whether a rendered prompt leaves a thinking block open at its end."""
    return prompt_text.rstrip().endswith(marks.opener.rstrip())


def _stem(opener: str) -> str:
    """The part of an opener that a template has in one piece."""
    return "<|channel|>analysis" if opener.startswith("<|channel|>") else opener.rstrip()


def _opening(source: str, opener: str) -> str:
    return f"{opener}\n" if f"{opener}\n" in source else opener


def _closing(source: str, opener: str, closer: str) -> str:
    """The closer as the template writes it; where it does not, as models of its kind do."""
    apart = source.replace(_opening(source, opener), "\0")  # an empty block's white space is the opener's
    written = max(re.findall(f"\n*{re.escape(closer)}\n*", apart), key=len, default=closer)
    if "\n" not in written and f"{opener}\n" in source:
        return f"\n{closer}\n\n"
    return written
