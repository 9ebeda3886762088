"""engine/grammar_check.py: what happens to its process."""

from __future__ import annotations

import pytest

from mashbox.engine import grammar_check
from mashbox.engine.grammar_check import TOO_LONG, GrammarCheck

GOOD, BAD = 'start: "a"', "start: missing"


def test_a_process_that_starts_too_late_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    check = GrammarCheck()
    monkeypatch.setattr(grammar_check, "START_TIMEOUT_S", 0.001)
    with pytest.raises(TimeoutError):
        check.fault(GOOD)
    monkeypatch.undo()
    # Not the late one's first word, which is no fault, and not that it is late.
    assert check.fault(BAD) not in (None, TOO_LONG)
    assert check.fault(GOOD) is None
