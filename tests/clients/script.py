"""Sentences for scripts: tool calls as the scripted model writes them, and what tells a prompt's state."""

from __future__ import annotations

import json
import re
from typing import Any


def call(name: str, **arguments: Any) -> str:
    """A tool call in the scripted model's syntax."""
    body = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
    return f"<tool_call>\n{body}\n</tool_call>"


def think(text: str) -> str:
    """A block of thinking."""
    return f"<think>\n{text}\n</think>\n\n"


def results(*texts: str) -> str:
    """A pattern: the prompt ends with the results of a turn's calls, which hold these texts in this order."""
    rest = r"(?:(?!</tool_response>).)*"
    inner = "".join(rf"<tool_response>\n{rest}{re.escape(text)}{rest}\n</tool_response>\s*" for text in texts)
    return inner + r"<\|im_end\|>\n" + NO_ANSWER + TURN


NO_ANSWER = r"(?:(?!<\|im_start\|>assistant).)*"
TURN = r"<\|im_start\|>assistant\n(?:<think>\s*</think>\s*)?$"
"""A pattern: it is the model's turn."""


def said(text: str) -> str:
    """A pattern: the user's last turn holds this text, and it is the model's turn."""
    return rf"<\|im_start\|>user\n(?:(?!<\|im_start\|>).)*{re.escape(text)}" + NO_ANSWER + TURN
