"""That the tiny models are worth testing with: what they say depends on all they read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mashbox.catalog.gguf import read_model
from mashbox.config import ModelConfig
from mashbox.engine.llama import LlamaBackend
from mashbox.engine.types import Segment
from tests import tiny_models

LETTERS = "The quick brown fox jumps over the lazy dog. " * 6


def answer(backend: LlamaBackend, prompt: str) -> str:
    """Sixteen greedy tokens."""
    assert backend.trim(0, 0)
    tokens = backend.tokenize([Segment(prompt, True)])
    logits = backend.prefill(0, 0, tokens, True)
    text = b""
    for position in range(len(tokens), len(tokens) + 16):
        assert logits is not None
        token = int(logits.argmax())
        text += backend.piece(token)
        logits = backend.decode([0], [position], [token])[0]
    return text.decode()


@pytest.mark.parametrize("kind", tiny_models.KINDS)
def test_every_letter_of_the_prompt_counts(tiny_model: Callable[[str], Path], kind: str) -> None:
    backend = LlamaBackend(ModelConfig(str(tiny_model(kind)), 512, 1, threads=1), lambda _: None)
    prompts = [LETTERS, "X" + LETTERS[1:], LETTERS[:150] + "X" + LETTERS[151:], LETTERS[:-1] + "X", "Hello"]
    answers = [answer(backend, prompt) for prompt in prompts]
    backend.close()
    assert len(set(answers)) == len(prompts)
    for text in answers:
        assert text.isascii()
        assert text.isprintable()
        assert len(set(text)) > 4


@pytest.mark.parametrize("kind", tiny_models.KINDS)
def test_the_same_file_every_time(tmp_path: Path, tiny_model: Callable[[str], Path], kind: str) -> None:
    again = tiny_models.write(kind, tmp_path)
    assert again.read_bytes() == tiny_model(kind).read_bytes()
    assert again.stat().st_size < 4_000_000


@pytest.mark.parametrize(
    ("kind", "floats"),
    [
        *((kind, False) for kind in ("window", "hybrid", "recurrent", "q8_0", "q4_k")),
        *((kind, True) for kind in ("window_f32", "experts", "f16", "bf16")),
    ],
)
def test_matrices_of_floats_are_seen_in_the_header(
    tiny_model: Callable[[str], Path], kind: str, floats: bool
) -> None:
    """Convolutions and the like of recurrent layers are no matrices that a row is multiplied with."""
    assert read_model([tiny_model(kind)]).float_matrices == floats
