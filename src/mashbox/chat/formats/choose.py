"""Which tool-call format a model uses."""

from __future__ import annotations

from mashbox.chat.formats.format import ToolFormat
from mashbox.chat.formats.hermes import Hermes
from mashbox.chat.formats.plain import Plain
from mashbox.errors import ConfigError

_FORMATS: tuple[ToolFormat, ...] = (Hermes(), Plain())
FORMAT_NAMES: tuple[str, ...] = tuple(known.name for known in _FORMATS)
"""What --tool-format takes."""

_MARKS: tuple[tuple[str, tuple[str, ...]], ...] = (("hermes", ("<tool_call>",)),)
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
