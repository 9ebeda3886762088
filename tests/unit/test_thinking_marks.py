"""Which marks a template's model uses, and whether a prompt ends inside of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from mashbox.chat.thinking import Marks, ends_inside, find_marks

TOOLS = Path(__file__).parent / "templates" / "tools"

QWEN = Marks("<think>", "</think>", "<think>\n", "\n</think>\n\n", words=True)


@pytest.mark.parametrize(
    ("name", "marks"),
    [
        ("qwen3", QWEN),
        ("deepseek", QWEN),  # only cuts at the closer, so what goes around it is a guess
        ("glm", Marks("<think>", "</think>", "<think>", "</think>", words=True)),
        ("blocks", Marks("[THINK]", "[/THINK]", "[THINK]", "[/THINK]")),
        (
            "harmony",
            Marks("<|channel|>analysis<|message|>", "<|end|>", "<|channel|>analysis<|message|>", "<|end|>"),
        ),
        ("untaught", None),
        ("mistral", None),
        ("llama3", None),
    ],
)
def test_marks_of_a_template(name: str, marks: Marks | None) -> None:
    control_tokens = ("[THINK]", "[/THINK]", "<|channel|>", "<|message|>", "<|end|>")
    source = (TOOLS / f"{name}.jinja").read_text()
    assert find_marks(source, () if marks is None else control_tokens) == marks


@pytest.mark.parametrize(
    ("source", "opener", "closing"),
    [
        ("'<think>\\n\\n</think>\\n'", "<think>", "\n</think>\n"),
        ("content.split('</think>')[-1]", "<think>", "</think>"),
        ("'<seed:think>' ~ t ~ '</seed:think>'", "<seed:think>", "</seed:think>"),
        ("'<mm:think>'", "<mm:think>", "</mm:think>"),
        ("'<|START_THINKING|><|END_THINKING|>\n'", "<|START_THINKING|>", "<|END_THINKING|>\n"),
        ("'<|channel>thought\\n<channel|>'", "<|channel>thought\n", "<channel|>"),
    ],
)
def test_closers_as_the_template_writes_them(source: str, opener: str, closing: str) -> None:
    marks = find_marks(source, ())
    assert marks is not None
    assert (marks.opener, marks.closing, marks.known) == (opener, closing, True)


def test_marks_that_only_the_vocabulary_has() -> None:
    assert find_marks("plain", ("<think>",)) is None
    marks = find_marks("plain", ("<s>", "<think>", "</think>"))
    assert marks == Marks("<think>", "</think>", "<think>\n", "\n</think>\n\n", known=False)


@pytest.mark.parametrize(
    ("prompt", "inside"),
    [
        ("<|im_start|>assistant\n<think>\n", True),
        ("<|im_start|>assistant\n<think>", True),
        ("<|im_start|>assistant\n<think>\n\n</think>\n\n", False),
        ("<think>\nhm\n</think>\n\nyes<|im_end|>\n<|im_start|>assistant\n", False),
        ("What does <think> do?<|im_end|>\n<|im_start|>assistant\n", False),
        ("", False),
    ],
)
def test_prompts_that_end_inside(prompt: str, inside: bool) -> None:
    assert ends_inside(prompt, QWEN) is inside


def test_an_opener_that_ends_with_white_space() -> None:
    marks = Marks("<|channel>thought\n", "<channel|>", "<|channel>thought\n", "<channel|>")
    assert ends_inside("<|turn>model\n<|channel>thought\n", marks)
