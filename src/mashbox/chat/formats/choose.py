"""Which tool-call format a model uses."""

from __future__ import annotations

from mashbox.chat.formats.deepseek import BAR, LOW, DeepSeek
from mashbox.chat.formats.format import ToolFormat
from mashbox.chat.formats.glm import Glm
from mashbox.chat.formats.harmony import Harmony
from mashbox.chat.formats.hermes import Hermes
from mashbox.chat.formats.lfm2 import Lfm2
from mashbox.chat.formats.llama3 import Llama3
from mashbox.chat.formats.mistral import Mistral
from mashbox.chat.formats.plain import Plain
from mashbox.chat.formats.qwen3_coder import Qwen3Coder
from mashbox.errors import ConfigError

_FORMATS: tuple[ToolFormat, ...] = (
    Hermes(),
    Qwen3Coder(),
    Llama3(),
    Mistral(each=False),
    Mistral(each=True),
    DeepSeek(fenced=True),
    DeepSeek(fenced=False),
    Glm(),
    Lfm2(),
    Harmony(),
    Plain(),
)
FORMAT_NAMES: tuple[str, ...] = tuple(known.name for known in _FORMATS)
"""What --tool-format takes."""

_DEEPSEEK = f"<{BAR}tool{LOW}calls{LOW}begin{BAR}>"
_MARKS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("harmony", ("<|channel|>", "<|message|>")),
    ("deepseek-v3", (_DEEPSEEK, "```json")),
    ("deepseek-v3.1", (_DEEPSEEK,)),
    ("mistral-args", ("[TOOL_CALLS]", "[ARGS]")),
    ("mistral", ("[TOOL_CALLS]",)),
    ("lfm2", ("<|tool_call_start|>",)),
    ("lfm2", ("<|tool_list_start|>",)),
    ("lfm2", ("keep_past_thinking", "List of tools: [")),
    ("glm", ("<arg_key>",)),
    ("qwen3-coder", ("<function=", "<parameter=")),
    ("hermes", ("<tool_call>",)),
    ("llama3", ("<|python_tag|>",)),
    ("llama3", ("<|start_header_id|>", '"parameters"')),
)
"""A family and what must all stand in its templates; the first that fits counts."""


def choose_format(template_source: str | None, name: str | None) -> ToolFormat:
    """The format called `name`, or else the one whose marks stand in the template, or else plain.

    Raises ConfigError for a name that is none of FORMAT_NAMES.
    """
    return _by_name(_recognise(template_source or "") if name is None else name)


def _by_name(name: str) -> ToolFormat:
    for known in _FORMATS:
        if known.name == name:
            return known
    raise ConfigError(f"There is no tool format '{name}'. Choose one of: {', '.join(FORMAT_NAMES)}.")


def _recognise(source: str) -> str:
    return next((name for name, marks in _MARKS if all(mark in source for mark in marks)), "plain")
