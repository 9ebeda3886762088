"""Template files and the templates for models without one."""

from pathlib import Path

import pytest

from mashbox.chat.template import ChatTemplate
from mashbox.chat.template_source import fallback_template, load_template_file
from mashbox.chat.traits import CallForm, TemplateTraits
from mashbox.chat.types import Message
from mashbox.errors import ConfigError

TALK = (
    *(Message("system", "Be kind."), Message("user", "Hi\n"), Message("assistant", "Hello")),
    Message("user", "Bye<|im_end|>"),
)


def render(control: tuple[str, ...]) -> str:
    template = ChatTemplate(fallback_template(control).source, bos="", eos="", control_tokens=control)
    assert template.traits == TemplateTraits(tools=None, calls=CallForm.NOWHERE)
    return "".join(segment.text for segment in template.render(TALK))


def test_chatml_fallback() -> None:
    control = ("<|im_start|>", "<|im_end|>")
    assert render(control) == (
        "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nHi\n<|im_end|>\n"
        "<|im_start|>assistant\nHello<|im_end|>\n<|im_start|>user\nBye<|im_end|><|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    assert fallback_template(control).stop == ()


def test_transcript_fallback() -> None:
    assert (
        render(("<bos>",)) == "Be kind.\n\nUser: Hi\n\nAssistant: Hello\n\nUser: Bye<|im_end|>\n\nAssistant:"
    )
    assert fallback_template(("<bos>",)).stop == ("\nUser:",)


def test_template_file(tmp_path: Path) -> None:
    path = tmp_path / "own.jinja"
    path.write_text("\ufeff{{ 'é' }}\r\n", encoding="utf-8", newline="")
    assert load_template_file(path) == "{{ 'é' }}\r\n"


@pytest.mark.parametrize(
    ("content", "words"),
    [(b" \n", "is empty"), (b"ab\xff", "not UTF-8 text .byte 2"), (None, "does not exist")],
)
def test_bad_template_files(tmp_path: Path, content: bytes | None, words: str) -> None:
    path = tmp_path / "own.jinja"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=words):
        load_template_file(path)


def test_a_folder_is_no_template_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load_template_file(tmp_path)
