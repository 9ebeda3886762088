"""For models whose template knows no tools: the Hermes syntax, explained in the system prompt.

Also writes earlier calls and results as text, for messages that have room for nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from mashbox.chat.formats.format import CallReader
from mashbox.chat.formats.grammar import CallSyntax
from mashbox.chat.formats.hermes import CLOSER, OPENER, call_start, tagged_reader
from mashbox.chat.formats.json_call import object_text, tool_names
from mashbox.chat.types import Tool, ToolChoice
from mashbox.engine.types import Constraint

_SYNTAX = CallSyntax(head=lambda name: f"{OPENER}{call_start(name)}", tail=f"}}{CLOSER}")

_INTRODUCTION = "You can use tools. Each line below describes one tool and the JSON schema of its arguments."
_INSTRUCTION = f"""\
To use a tool, write one line like this, with the tool's name and its arguments as JSON:
{OPENER}{{"name": "...", "arguments": {{...}}}}{CLOSER}
Then stop. The result comes in the next message. Answer without a tool when you need none."""


class Plain:
    """The same reading as Hermes."""

    name = "plain"
    visible: tuple[str, ...] = (OPENER, CLOSER)
    openers: tuple[str, ...] = (OPENER,)
    always = False

    def reader(self, tools: Sequence[Tool]) -> CallReader:
        """See ToolFormat."""
        return tagged_reader(tool_names(tools))

    def constraint(self, tools: Sequence[Tool], choice: ToolChoice) -> Constraint:
        """See ToolFormat."""
        return _SYNTAX.constraint(tools, choice)


def describe(tools: Sequence[Tool]) -> str:
    """System-prompt text that tells a model of its tools and how to call them."""
    return "\n".join([_INTRODUCTION, *map(_describe_one, tools), "", _INSTRUCTION])


def _describe_one(tool: Tool) -> str:
    described = {"description": tool.description} if tool.description else {}
    return json.dumps({"name": tool.name, **described, "parameters": tool.parameters}, ensure_ascii=False)


def write_call(name: str, arguments: str) -> str:
    """An earlier call as the model should have written it. `arguments` is JSON text, kept as it is.

    What is no object stands as a JSON string.
    """
    kept = arguments if object_text(arguments) is not None else json.dumps(arguments, ensure_ascii=False)
    return f"{OPENER}{call_start(name)}{kept}}}{CLOSER}"


def write_result(name: str, content: str) -> str:
    """The result of an earlier call."""
    return f"Result of {name}:\n{content}" if name else f"Result:\n{content}"
