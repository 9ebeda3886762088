"""Models whose states cannot be cut back: what is computed again starts at the nearest snapshot."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.prompts import fresh_text

from tests import tiny_models
from tests.model.conftest import run_box
from tests.model.test_prompt_cache import GRID, Message, chat


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for models with random weights."""
    return tmp_path_factory.mktemp("tiny")


def conversation(words: int, last: str) -> list[Message]:
    """Two turns; only the last message differs."""
    return [
        {"role": "system", "content": fresh_text(words, "system")},
        {"role": "user", "content": fresh_text(words, "first")},
        {"role": "assistant", "content": "Yes."},
        {"role": "user", "content": f"Well, {fresh_text(words // 2, last)}"},
    ]


def check_changed_last_message(model: str, words: int, cached: int) -> None:
    """The same answers as on a server that has seen nothing else, and only the end computed."""
    options = ("--ctx", "2048", "--slots", "2", "--cache-ram", "256", "--exact")
    with run_box(model, *options) as box:
        first, second = (chat(box, conversation(words, name), 12) for name in ("one", "two"))
        shared = chat(box, [*conversation(words, "")[:-1], {"role": "user", "content": ""}], 1).total
    with run_box(model, *options) as box:
        cold = chat(box, conversation(words, "two"), 12)
    assert (first.cache_n, cold.cache_n) == (0, 0)
    assert (second.text, second.total) == (cold.text, cold.total)
    assert second.cache_n == cached
    assert cached % GRID == 0
    assert shared - 2 * GRID < cached < shared


def test_sliding_windows() -> None:
    check_changed_last_message("gemma3-270m", words=200, cached=384)


@pytest.mark.parametrize(("kind", "cached"), [("hybrid", 704), ("recurrent", 704), ("window", 704)])
def test_tiny_models(tiny: Path, kind: str, cached: int) -> None:
    check_changed_last_message(str(tiny_models.write(kind, tiny)), words=60, cached=cached)
