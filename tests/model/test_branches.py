"""Branches on real vocabularies: another last message must leave the tokens before them as they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mashbox.catalog.resolve import resolve
from mashbox.chat.prompt import ChatFormat, build_prompt, render
from mashbox.chat.template import ChatTemplate
from mashbox.chat.template_source import fallback_template
from mashbox.chat.types import ChatRequest, GenerateOptions, Message, Tool, ToolCall
from mashbox.config import ModelConfig
from mashbox.engine.branches import branch_lengths
from mashbox.engine.llama import LlamaBackend
from mashbox.engine.types import Sampling

FOLDER = Path(__file__).parents[1] / "unit" / "templates" / "tools"
TEMPLATES = ("gemma", "qwen3", "mistral", "deepseek", "llama3")
TOOLS = (Tool("look", "Looks it up.", {"type": "object", "properties": {"path": {"type": "string"}}}),)
PIECES = (
    *(
        "the river",
        " runs",
        "\n",
        "\n\n",
        "  ",
        " ",
        "\t",
        "1234",
        "don't",
        "é",
        "e\u0301",
        "日本",
        "😀",
        "<",
    ),
    *(
        "|im_start|>",
        "<|im_end|>",
        "<start_of_turn>",
        "user",
        "<bos>",
        "\u2581",
        "\u00a0",
        "\ud800",
        "{\n    ",
    ),
)
SLACK = 3
"""Tokens before a message that may be left out: white space, and the one that could change."""


class Vocabulary:
    """A real model's tokens on a grid of one, and chat formats that write its control tokens."""

    def __init__(self, name: str) -> None:
        config = ModelConfig(str(resolve(name).paths[0]), context=256, slots=1, threads=1)
        self.backend = LlamaBackend(config, lambda _: None)
        self.backend.facts = msgspec.structs.replace(self.backend.facts, grid=1)
        facts = self.backend.facts
        sources = [(FOLDER / f"{template}.jinja").read_text() for template in TEMPLATES]
        sources += [facts.chat_template or fallback_template(facts.control_tokens).source]
        self.formats = [self._format(source) for source in sources]

    def _format(self, source: str) -> ChatFormat:
        facts = self.backend.facts
        template = ChatTemplate(source, bos=facts.bos, eos=facts.eos, control_tokens=facts.control_tokens)
        return ChatFormat.of(template, branching=True)

    def lengths(self, chat: ChatFormat, request: ChatRequest) -> tuple[list[int], tuple[int, ...]]:
        """A prompt's tokens and the lengths of its branches."""
        prompt = build_prompt(chat, request)
        tokens = self.backend.tokenize(prompt.segments)
        return tokens, branch_lengths(self.backend, prompt.segments, tokens, prompt.branches)


@pytest.fixture(scope="module", params=["smollm2-135m", "gemma3-270m"])
def vocabulary(request: pytest.FixtureRequest) -> Iterator[Vocabulary]:
    found = Vocabulary(request.param)
    yield found
    found.backend.close()


TEXTS = st.lists(st.sampled_from(PIECES), max_size=6).map("".join)


@st.composite
def histories(draw: st.DrawFn) -> list[Message]:
    """A conversation that any message may follow; every call has its result."""
    messages = [Message("system", draw(TEXTS))] if draw(st.booleans()) else []
    for number in range(draw(st.integers(0, 4))):
        messages.append(Message("user", draw(TEXTS)))
        if draw(st.booleans()):
            call = ToolCall(f"c{number}", "look", '{"path": "a"}')
            messages.append(Message("assistant", draw(TEXTS), tool_calls=(call,)))
            messages.append(Message("tool", draw(TEXTS), tool_call_id=call.id))
        messages.append(Message("assistant", draw(TEXTS)))
    return messages


def ask(messages: Sequence[Message], tools: tuple[Tool, ...]) -> ChatRequest:
    return ChatRequest(tuple(messages), GenerateOptions(Sampling()), tools)


@settings(max_examples=60)
@given(histories(), TEXTS, TEXTS, st.booleans())
@example([], "\n\nhi", "hi", True)
@example([Message("user", "a"), Message("assistant", "b")], "hi", "\nhi", True)
def test_another_last_message_leaves_the_tokens_before_it(
    vocabulary: Vocabulary, history: list[Message], text: str, other: str, with_tools: bool
) -> None:
    tools = TOOLS if with_tools else ()
    # Unlike any message before: templates find the last one by comparing.
    last, another = Message("user", f"{text}?"), Message("user", f"{other}!")
    for chat in vocabulary.formats:
        tokens, lengths = vocabulary.lengths(chat, ask([*history, last], tools))
        others, _ = vocabulary.lengths(chat, ask([*history, another], tools))
        assert list(lengths) == sorted(set(lengths))
        if lengths:
            assert tokens[: lengths[-1]] == others[: lengths[-1]]


@settings(max_examples=30)
@given(histories())
def test_the_last_branch_is_right_before_the_last_message(
    vocabulary: Vocabulary, history: list[Message]
) -> None:
    """So that only that message is computed again."""
    for chat in vocabulary.formats:
        request = ask([*history, Message("user", "Question?")], TOOLS)
        tokens, lengths = vocabulary.lengths(chat, request)
        text = "".join(segment.text for segment in render(chat, request))
        spelled = [vocabulary.backend.vocabulary.literals[token] for token in tokens[lengths[-1] + SLACK :]]
        behind = text[text.rindex("Question?") :]
        assert len(b"".join(spelled)) <= len(behind.encode())
