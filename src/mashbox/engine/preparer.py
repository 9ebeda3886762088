"""From a `Submit` to what the engine's loop runs. Called by the worker's tokeniser thread."""

from __future__ import annotations

from collections.abc import Callable

from mashbox.engine.backend import Backend
from mashbox.engine.branches import branch_lengths
from mashbox.engine.constraint import Grammars
from mashbox.engine.core import Generation
from mashbox.engine.sampling import Sampler
from mashbox.engine.states import as_tokens
from mashbox.engine.steering import Closing, Guard, Steering
from mashbox.engine.thinking import AnswerText
from mashbox.engine.types import Reasoning, Segment, Submit


class Preparer:
    """Prepares the requests of one model. Building it takes tenths of a second for large vocabularies."""

    def __init__(self, backend: Backend, silent: Callable[[float], object] = lambda seconds: None) -> None:
        self._backend = backend
        self._grammars = Grammars(backend, silent)
        vocabulary = backend.vocabulary
        self._control = {token: vocabulary.literals[token] for token in vocabulary.control}

    def prepare(self, command: Submit, prompt: list[int], arrived: float) -> Generation:
        """A request whose prompt fits the context. Raises GrammarError when its constraint is no use."""
        room = self._backend.facts.context - len(prompt)
        reasoning = command.reasoning
        if command.constraint is not None and reasoning is not None and not reasoning.inside:
            # The grammar describes the answer from its first token on: there is no thinking to find.
            reasoning = None
        steering = self._steering(command, reasoning)
        waits = steering is not None and command.constraint is not None
        return Generation(
            id=command.id,
            prompt=as_tokens(prompt),
            limit=room if command.max_tokens is None else min(command.max_tokens, room),
            sampler=Sampler(command.sampling, prompt),
            text=AnswerText(command.stop, reasoning, steering.begin if steering and waits else None),
            arrived=arrived,
            steering=steering,
            literals=self._literals(command.visible, reasoning),
            tenant=command.tenant,
            branches=branch_lengths(self._backend, command.segments, prompt, command.branches),
        )

    def _steering(self, command: Submit, reasoning: Reasoning | None) -> Steering | None:
        closing = self._closing(reasoning)
        if command.constraint is None:
            return None if closing is None or closing.budget is None else Steering(closing, None)
        matcher = self._grammars.compile(command.constraint, command.visible)
        guard = Guard(matcher, self._grammars.white, self._backend.vocabulary.ends)
        return Steering(closing, guard, waits=reasoning is not None)

    def _closing(self, reasoning: Reasoning | None) -> Closing | None:
        if reasoning is None or not reasoning.closer:
            return None
        text = reasoning.closing if reasoning.closer in reasoning.closing else reasoning.closer
        return Closing(self._backend.tokenize([Segment(text, True)], begins=False), reasoning.budget)

    def _literals(self, visible: tuple[str, ...], reasoning: Reasoning | None) -> dict[int, bytes]:
        """The control tokens that are text for this request: visible ones, and those of its marks."""
        if not visible and reasoning is None:
            return {}
        shown = {literal.encode() for literal in visible}
        marks = [mark.encode() for mark in (reasoning.opener, reasoning.closer)] if reasoning else []
        return {
            token: literal
            for token, literal in self._control.items()
            if literal in shown or any(literal in mark for mark in marks)
        }
