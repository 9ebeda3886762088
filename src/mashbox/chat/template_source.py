"""Where a chat template's text comes from when the model file does not have it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from mashbox.errors import ConfigError

_CHATML = """\
{% for message in messages %}
<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor %}
{% if add_generation_prompt %}
<|im_start|>assistant
{% endif %}
"""

_TRANSCRIPT = """\
{% set names = {"user": "User", "assistant": "Assistant", "tool": "Tool result"} %}
{% for message in messages %}
{% if message.role != "system" %}{{ names[message.role] }}: {% endif %}
{{- message.content | trim }}

{% endfor %}
{%- if add_generation_prompt %}Assistant:{% endif %}
"""


@dataclass(frozen=True, slots=True)
class FallbackTemplate:
    """A template for models without one, and the stop strings that its answers need."""

    source: str
    stop: tuple[str, ...]


def fallback_template(control_tokens: Collection[str]) -> FallbackTemplate:
    """ChatML if the model has its two control tokens, else a plain `User: ... Assistant:` transcript.

    A transcript has no token that ends the model's turn, so the next "User:" line must stop it.
    """
    if "<|im_start|>" in control_tokens and "<|im_end|>" in control_tokens:
        return FallbackTemplate(_CHATML, ())
    return FallbackTemplate(_TRANSCRIPT, ("\nUser:",))


def load_template_file(path: Path) -> str:
    """The text of a template file. Raises ConfigError if it is missing, unreadable, empty or not UTF-8."""
    try:
        source = path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError as error:
        raise ConfigError(f"The chat template file {path} does not exist.") from error
    except OSError as error:
        raise ConfigError(f"The chat template file {path} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"The chat template file {path} is not UTF-8 text (byte {error.start} is wrong)."
        ) from error
    if not source.strip():
        raise ConfigError(f"The chat template file {path} is empty.")
    return source
