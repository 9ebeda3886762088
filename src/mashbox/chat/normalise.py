"""Shapes a conversation so that the model's template takes it. The one place where that happens.

Many templates refuse or silently drop what clients send: a second system message, two user messages
in a row, an answer first, several calls at once. `TemplateTraits` says what the template can do; what
it can is left alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from mashbox.chat.formats import plain
from mashbox.chat.pairing import pair_results
from mashbox.chat.traits import CallForm, CallText, SystemPlace, TemplateTraits
from mashbox.chat.types import Message, Tool

CONTINUE = "Continue."
"""The user's text after a conversation that ends with the assistant, where the template wants one."""


def normalise(
    messages: Sequence[Message], traits: TemplateTraits, tools: Sequence[Tool] = ()
) -> tuple[Message, ...]:
    """The same conversation in a form the template takes.

    - Results stand after their calls and ids are neutral: see `pair_results`.
    - If the template shows no tools, `tools` are told in a system message; if it shows no calls or no
      results, these become text of assistant and user messages.
    - Calls, their texts and what follows them are parted or joined as the template wants them.
    - An empty answer is left out if the template does not take one.
    - System messages are joined into one at the start, or into the first user message, as needed.
    - Messages of the same role in a row are joined if roles must alternate.
    - A user message is put before an answer that stands first, and after one that stands last,
      if the template does not take that.

    Joined texts are parted by a blank line; empty ones are left out of a joint text.
    """
    conversation = _write_out(pair_results(messages), traits)
    if tools and traits.tools is None:
        conversation = _tell_tools(conversation, tools)
    if not traits.empty_assistant:
        conversation = [m for m in conversation if not _is_empty_answer(m)]
    conversation = _place_system(conversation, traits)
    if not traits.assistant_first:
        conversation = _user_first(conversation)
    if not traits.repeated_roles:
        conversation = _merge_repeated(conversation)
    conversation = _part_calls(conversation, traits)
    if not traits.user_after_results:
        conversation = _fold_into_results(conversation)
    if not traits.assistant_last and conversation and _is_answer(conversation[-1]):
        conversation.append(Message("user", CONTINUE))
    return tuple(conversation)


def _is_answer(message: Message) -> bool:
    return message.role == "assistant" and not message.tool_calls


def _is_empty_answer(message: Message) -> bool:
    return _is_answer(message) and not message.content.strip()


def _write_out(messages: list[Message], traits: TemplateTraits) -> list[Message]:
    """Calls and results as text, where the template does not show them."""
    names = {call.id: call.name for message in messages for call in message.tool_calls}
    told = set(names) if traits.calls is CallForm.NOWHERE else set()
    if not traits.open_calls:
        told |= _open_calls(messages)
    written: list[Message] = []
    for message in messages:
        if any(call.id in told for call in message.tool_calls):
            message = _calls_as_text(message, told)
        elif message.role == "tool" and (traits.tools is None or not traits.tool_role):
            name = names[message.tool_call_id or ""]
            message = Message("user", plain.write_result(name, message.content))
        written.append(message)
    return written


def _open_calls(messages: list[Message]) -> set[str]:
    """The ids of calls that no result answers before a user or the system speaks."""
    found: set[str] = set()
    waiting: set[str | None] = set()
    for message in messages:
        if message.role == "tool":
            waiting.discard(message.tool_call_id)
        elif message.role == "assistant":
            spoken = bool(message.content.strip())  # an answer closes what was called before it
            waiting = (set() if spoken else waiting) | {call.id for call in message.tool_calls}
        else:
            found |= {call_id for call_id in waiting if call_id}
            waiting = set()
    return found


def _calls_as_text(message: Message, told: set[str]) -> Message:
    calls = [plain.write_call(call.name, call.arguments) for call in message.tool_calls if call.id in told]
    text = [message.content] if message.content.strip() else []
    kept = tuple(call for call in message.tool_calls if call.id not in told)
    return replace(message, content="\n".join([*text, *calls]), tool_calls=kept)


def _tell_tools(messages: list[Message], tools: Sequence[Tool]) -> list[Message]:
    told = Message("system", plain.describe(tools))
    if messages and messages[0].role == "system":
        return [Message("system", _joined([messages[0], told])), *messages[1:]]
    return [told, *messages]


def _place_system(messages: list[Message], traits: TemplateTraits) -> list[Message]:
    system = [message for message in messages if message.role == "system"]
    others = [message for message in messages if message.role != "system"]
    if not system:
        return messages
    if not others and not traits.system_alone:
        return [Message("user", _joined(system))]
    if traits.system is SystemPlace.ANYWHERE:
        return messages
    if traits.system is SystemPlace.FIRST:
        return [Message("system", _joined(system)), *others]
    if not any(message.content.strip() for message in system):
        return others
    if others and others[0].role == "user":
        return [Message("user", _joined([*system, others[0]])), *others[1:]]
    return [Message("user", _joined(system)), *others]


def _user_first(messages: list[Message]) -> list[Message]:
    start = next((i for i, message in enumerate(messages) if message.role != "system"), None)
    if start is None or messages[start].role != "assistant":
        return messages
    return [*messages[:start], Message("user", ""), *messages[start:]]


def _merge_repeated(messages: list[Message]) -> list[Message]:
    runs: list[list[Message]] = []
    for message in messages:
        if runs and _may_join(runs[-1][-1], message):
            runs[-1].append(message)
        else:
            runs.append([message])
    return [_join(run) for run in runs]


def _may_join(first: Message, second: Message) -> bool:
    """Nothing is joined behind calls: what follows them was said after they were made."""
    return first.role == second.role and first.role in ("user", "assistant") and not first.tool_calls


def _join(run: list[Message]) -> Message:
    if len(run) == 1:
        return run[0]
    thinking = "\n\n".join(message.thinking for message in run if message.thinking)
    return replace(run[-1], content=_joined(run), thinking=thinking)


def _part_calls(messages: list[Message], traits: TemplateTraits) -> list[Message]:
    parted: list[Message] = []
    for message in messages:
        if message.role == "tool" and not (traits.parallel_calls or traits.calls is CallForm.NOWHERE):
            # Each call's message already stands there; the result goes right behind it.
            behind = len(parted)
            while not _makes(parted[behind - 1], message.tool_call_id):
                behind -= 1
            parted.insert(behind, message)
        elif message.tool_calls:
            parted.extend(_call_messages(message, traits))
        else:
            parted.append(message)
    return parted


def _makes(message: Message, call_id: str | None) -> bool:
    return any(call.id == call_id for call in message.tool_calls)


def _call_messages(message: Message, traits: TemplateTraits) -> Iterator[Message]:
    """A message with calls as one or more that the template shows whole."""
    has_text = bool(message.content.strip())
    if has_text and traits.call_text is CallText.BEFORE:
        yield replace(message, tool_calls=())
        message = replace(message, content="", thinking="")
    elif has_text and traits.call_text is CallText.NOWHERE:
        message = replace(message, content="")
    elif has_text and message.thinking and not traits.thinking_beside_text:
        message = replace(message, content="", thinking=f"{message.thinking}\n\n{message.content}")
    if traits.parallel_calls:
        yield message
        return
    first, *rest = message.tool_calls
    yield replace(message, tool_calls=(first,))
    for call in rest:
        yield Message("assistant", "", tool_calls=(call,))


def _fold_into_results(messages: list[Message]) -> list[Message]:
    """A user's text right after a result becomes the end of that result."""
    folded: list[Message] = []
    for message in messages:
        if folded and folded[-1].role == "tool" and message.role == "user":
            message = replace(folded[-1], content=_joined([folded.pop(), message]))
        folded.append(message)
    return folded


def _joined(messages: Sequence[Message]) -> str:
    return "\n\n".join(message.content for message in messages if message.content.strip())
