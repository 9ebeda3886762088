"""All checks in their order, and what exact mode may do because of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from mashbox.config import PREFILL_CHUNK, PREFILL_ROWS, ModelConfig
from mashbox.engine.backend import Backend
from mashbox.engine.certificate import Check
from mashbox.engine.certify import images, prefill, rows, spelling
from mashbox.engine.certify.default import TURN, DefaultAnswers
from mashbox.engine.certify.exact import ANSWER, TAIL, ExactAnswers
from mashbox.engine.certify.messages import Doing, Ended, Found, GateConfig, Loaded, Say
from mashbox.engine.certify.probe import ClosableBackend, Probe, prompt_of

TEXT = 7
"""The number of the story that the checks below the engine's loop read."""

Load = Callable[[ModelConfig], ClosableBackend]
Checks = Iterable[tuple[str, Callable[[], Check]]]


@dataclass(frozen=True, slots=True)
class Plan:
    """What is tried, in tokens, cut to what the context holds. Lengths ascend."""

    states: tuple[int, ...]
    """Lengths of states that are saved and restored."""
    contexts: tuple[int, ...]
    """Lengths at which decode calls are compared: around the library's steps of 256 and 512."""
    widths: tuple[int, ...]
    """Of prefill calls."""
    prompts: tuple[int, ...]
    """Lengths of the prompts of whole answers: around multiples of 64 and 512."""

    @property
    def text(self) -> int:
        """Tokens of text that the checks below the loop need."""
        return max(*self.states, *self.contexts) + 3 * PREFILL_CHUNK


def plan_for(context: int, quick: bool) -> Plan:
    """The lengths for a context; `quick` has fewer and shorter ones."""
    room = context - TURN - TAIL - 2 * ANSWER - 3 * PREFILL_CHUNK

    def fit(*lengths: int) -> tuple[int, ...]:
        return tuple(sorted({max(2, min(length, room)) for length in lengths}))

    prompts = (9, 20, 64, 65, 66, 130, 200, 600) if quick else (20, 64, 65, 130, 511, 512, 513, 1210)
    return Plan(
        states=fit(65, 600) if quick else fit(65, 512, 1210),
        contexts=fit(64, 600) if quick else fit(64, 255, 257, 511, 513, 1210),
        widths=tuple(
            range(2 * PREFILL_CHUNK, PREFILL_ROWS + 1, 6 * PREFILL_CHUNK if quick else PREFILL_CHUNK)
        ),
        prompts=tuple(max(2, min(length, room)) for length in prompts),
    )


class Gate:
    """Runs everything once. Tells each check's result as it comes."""

    def __init__(self, config: GateConfig, load: Load, say: Say) -> None:
        self._model = config.model
        self._exact = replace(self._model, exact=True, flash_attn="off")
        self._plan = plan_for(config.model.context, config.quick)
        self._floats = config.float_matrices
        self._load = load
        self._say = say
        self._failed = 0

    def run(self) -> None:
        """Three times a model: exact mode below the loop, exact mode as found, default mode."""
        widest, together = self._explore()
        exact = replace(self._exact, prefill_rows=widest, decode_rows=together)
        self._try_answers(exact, lambda backend: ExactAnswers(backend, self._plan.prompts).checks())
        default = replace(self._model, prefill_rows=PREFILL_ROWS)
        self._try_answers(default, lambda backend: DefaultAnswers(backend, self._plan.prompts).checks())
        self._say(Ended(not self._failed, together, widest))

    def _explore(self) -> tuple[int, int]:
        """The widest prefill call and the most decode rows; checks of text and states on the way."""
        backend = self._load(replace(self._exact, prefill_rows=PREFILL_ROWS, decode_rows=self._model.slots))
        self._say(Loaded(backend.facts.build))
        plan = self._plan
        probe = Probe(backend, prompt_of(backend, TEXT, plan.text))
        self._try_all(self._state_checks(probe, plan.states))
        widest = self._find(prefill.NAME, lambda: prefill.find_width(probe, plan.widths, plan.contexts[-1]))
        together = self._find(rows.NAME, lambda: rows.find_classes(probe, plan.contexts, self._floats))
        backend.close()
        return widest or PREFILL_CHUNK, together or 1

    @staticmethod
    def _state_checks(probe: Probe, lengths: Sequence[int]) -> Checks:
        backend = probe.backend
        yield spelling.SAMPLES_NAME, lambda: spelling.check_samples(backend)
        yield spelling.WORDS_NAME, lambda: spelling.check_control_words(backend)
        on_grid = sorted({max(length // probe.grid, 1) * probe.grid for length in lengths})
        whole = lengths if backend.facts.can_trim else on_grid
        yield images.RESTORE, lambda: images.check_restore(probe, whole)
        yield images.CUT, lambda: images.check_cut(probe, whole)
        if not backend.facts.can_trim:
            yield images.SNAPSHOT, lambda: images.check_snapshot(probe, on_grid)
            yield images.OFF_GRID, lambda: images.measure_off_grid(probe, lengths)

    def _try_answers(self, config: ModelConfig, checks: Callable[[Backend], Checks]) -> None:
        backend = self._load(config)
        self._say(Doing("answers alone, from nothing"))
        self._try_all(checks(backend))
        backend.close()

    def _try_all(self, checks: Checks) -> None:
        for name, check in checks:
            self._try(name, check)

    def _try(self, name: str, check: Callable[[], Check]) -> None:
        """Run one check and tell its result. A library that refuses what it should do has not passed."""
        self._say(Doing(name))
        try:
            found = check()
        except RuntimeError as error:
            found = Check(name, "failed", f"the library refuses: {error}")
        self._failed += found.outcome == "failed"
        self._say(Found(found))

    def _find(self, name: str, find: Callable[[], tuple[int, Check]]) -> int:
        """What a search finds, or 0."""
        value = 0

        def check() -> Check:
            nonlocal value
            value, found = find()
            return found

        self._try(name, check)
        return value
