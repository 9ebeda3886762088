"""The model's own chat template: a conversation in, prompt segments out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from datetime import datetime
from typing import Any

from jinja2 import Template, TemplateError, TemplateSyntaxError

from mashbox.chat.message_dict import message_dicts, tool_dict
from mashbox.chat.normalise import normalise
from mashbox.chat.probe import find_traits
from mashbox.chat.sandbox import (
    TEMPLATE_FAILURES,
    ChatEnvironment,
    RenderTimeoutError,
    bind,
    compile_source,
    run,
)
from mashbox.chat.shield import ControlLiterals, Shield, private_characters, split_segments
from mashbox.chat.thinking import find_marks
from mashbox.chat.traits import CallForm, TemplateTraits
from mashbox.chat.types import Message, Tool
from mashbox.engine.types import Segment
from mashbox.errors import ConfigError, InvalidRequestError

_OWN_VARIABLES = {"messages", "tools", "bos_token", "eos_token", "raise_exception", "strftime_now"}
_MAX_MESSAGE = 500


class ChatTemplate:
    """A compiled chat template of one model.

    `control_tokens` are the literals that become control tokens when specials are parsed; text from
    requests never becomes one. `traits` says what the template takes, `tool_traits` what it takes when
    tools are declared, `marks` how the model marks its thinking. Raises ConfigError if `source` does
    not compile. Instances do not change; rendering is safe from several threads.
    """

    def __init__(
        self,
        source: str,
        *,
        bos: str,
        eos: str,
        control_tokens: Sequence[str],
        clock: Callable[[], datetime] = datetime.now,
    ) -> None:
        self._literals = ControlLiterals(control_tokens)
        self._clock = clock
        self._tokens = {"bos_token": bos, "eos_token": eos}
        self.source = source
        self.marks = find_marks(source, control_tokens)
        try:
            self._code, text = compile_source(source, ChatEnvironment(Shield("", ""), clock))
        except TemplateSyntaxError as error:
            raise ConfigError(
                f"The chat template does not compile: line {error.lineno}: {error.message}"
            ) from error
        except (RecursionError, SyntaxError) as error:
            raise ConfigError(f"The chat template does not compile: {error}") from error
        self._taken = private_characters([text, bos, eos, *control_tokens])
        self._shield = Shield.avoiding(self._literals.chars, self._taken)
        self._template = bind(self._code, ChatEnvironment(self._shield, clock))
        self.traits, self.tool_traits = find_traits(self._render_probe)

    def render(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool] = (),
        /,
        *,
        add_generation_prompt: bool = True,
        **template_kwargs: Any,
    ) -> tuple[Segment, ...]:
        """The prompt for a conversation; neighbours differ in kind and none is empty.

        `template_kwargs` are extra JSON-like variables for the template. Raises InvalidRequestError,
        code "template_error", with the template's own words if it refuses or fails.
        """
        if taken := _OWN_VARIABLES.intersection(template_kwargs):
            name = min(taken)
            raise InvalidRequestError(
                f"The chat template's variable '{name}' cannot be set.", param="chat_template_kwargs"
            )
        traits = self.tool_traits if tools else self.traits
        shaped = normalise(messages, traits, tools)
        variables = {"add_generation_prompt": add_generation_prompt, **template_kwargs}
        return self._render_shaped(shaped, traits, tools, variables)

    def with_tools_in_words(self) -> ChatTemplate:
        """The same template, taken for one that shows neither tools nor calls."""
        if self.traits.tools_listed:
            return self  # its variable cannot be left out
        told = copy(self)
        told.traits = told.tool_traits = replace(self.traits, tools=None, calls=CallForm.NOWHERE)
        return told

    def _render_shaped(
        self,
        messages: Sequence[Message],
        traits: TemplateTraits,
        tools: Sequence[Tool],
        variables: Mapping[str, Any],
    ) -> tuple[Segment, ...]:
        dicts = message_dicts(messages, traits, self.marks)
        if traits.tools and (tools or traits.tools_listed):
            variables = {**variables, traits.tools: [tool_dict(tool, traits) for tool in tools]}
        return self._render_dicts(dicts, variables)

    def _render_dicts(
        self, messages: Sequence[dict[str, Any]], variables: Mapping[str, Any]
    ) -> tuple[Segment, ...]:
        shield = self._shield
        try:
            used = private_characters([*messages, dict(variables)])
            if not used.isdisjoint(shield.marks):
                shield = Shield.avoiding(self._literals.chars, self._taken | used)
            rendered = run(self._template_for(shield), self._context(messages, variables, shield))
        except TEMPLATE_FAILURES as error:
            raise _template_error(error, shield) from error
        return split_segments(rendered, shield, self._literals)

    def _template_for(self, shield: Shield) -> Template:
        return (
            self._template
            if shield is self._shield
            else bind(self._code, ChatEnvironment(shield, self._clock))
        )

    def _context(
        self, messages: Sequence[dict[str, Any]], variables: Mapping[str, Any], shield: Shield
    ) -> dict[str, Any]:
        return {
            "tools": None,
            "documents": None,
            **shield.cover_values(variables),
            **self._tokens,
            "messages": [{**shield.cover_values(message), "role": message["role"]} for message in messages],
        }

    def _render_probe(
        self, messages: Sequence[Message], traits: TemplateTraits, tools: Sequence[Tool]
    ) -> str:
        try:
            segments = self._render_shaped(messages, traits, tools, {"add_generation_prompt": True})
        except InvalidRequestError as error:
            if isinstance(error.__cause__, RenderTimeoutError):
                raise ConfigError(f"The chat template does not end: {error.__cause__}.") from error
            raise
        return "".join(segment.text for segment in segments)


def _template_error(error: Exception, shield: Shield) -> InvalidRequestError:
    if isinstance(error, RecursionError):
        reason = "it nests too deeply or calls itself without end"
    elif isinstance(error, MemoryError):
        reason = "it needs too much memory"
    else:
        reason = shield.uncover(str(error))[:_MAX_MESSAGE] or type(error).__name__
    verb = "refuses this conversation" if type(error) is TemplateError else "fails"
    return InvalidRequestError(
        f"The model's chat template {verb}: {reason}", param="messages", code="template_error"
    )
