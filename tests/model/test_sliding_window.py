"""A model whose layers forget what lies before their window: cutting its state back must stay right."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.model.conftest import Box, run_box


@pytest.fixture(scope="module")
def gemma() -> Iterator[Box]:
    with run_box("gemma3-270m", "--ctx", "2048", "--slots", "1") as box:
        yield box


@pytest.mark.parametrize("shared", [300, 900])
def test_a_shared_beginning_gives_the_answer_of_a_cold_start(gemma: Box, shared: int) -> None:
    """Within the window (512) and beyond it, after the slot held a longer text with the same beginning."""
    beginning = "The river runs to the sea. " * (shared // 7)
    asked = beginning + "The three largest planets are"
    cold = gemma.complete(asked, max_tokens=24)["choices"][0]["text"]
    gemma.complete("Something else entirely. " * 100, max_tokens=4)
    gemma.complete(beginning + "A cat sat on the mat. " * 100, max_tokens=4)
    assert gemma.complete(asked, max_tokens=24)["choices"][0]["text"] == cold


def test_a_model_without_a_template_chats_by_transcript(gemma: Box) -> None:
    messages = [{"role": "user", "content": "What is the capital of France?"}]
    chat = gemma.http.post("/v1/chat/completions", json={"messages": messages, "max_tokens": 30}).json()
    text = chat["choices"][0]["message"]["content"]
    assert "Paris" in text
    assert "User:" not in text
