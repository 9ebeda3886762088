"""Text survives tokenising and back, and control words in text stay text."""

from __future__ import annotations

from mashbox.engine.backend import Backend
from mashbox.engine.certificate import Check
from mashbox.engine.certify.texts import SAMPLES
from mashbox.engine.types import Segment

SAMPLES_NAME = "text comes back"
WORDS_NAME = "control words stay text"


def check_samples(backend: Backend) -> Check:
    """Samples of many scripts come back byte by byte."""
    lost = [name for name, text in SAMPLES if not _comes_back(backend, text)]
    return _check(SAMPLES_NAME, len(SAMPLES), lost)


def check_control_words(backend: Backend) -> Check:
    """No control word in a text becomes a control token, and it comes back as it was written."""
    words = backend.facts.control_tokens
    lost = [word for word in words if not _comes_back(backend, f"a {word} b{word}")]
    return _check(WORDS_NAME, len(words), lost)


def _comes_back(backend: Backend, text: str) -> bool:
    tokens = backend.tokenize([Segment(text, False)], begins=False)
    # A control token adds nothing to the text, so one that slipped in shows as a gap.
    return b"".join(backend.piece(token) for token in tokens) == text.encode()


def _check(name: str, count: int, lost: list[str]) -> Check:
    if lost:
        shown = ", ".join(lost[:3]) + (", ..." if len(lost) > 3 else "")
        return Check(name, "failed", f"{len(lost)} of {count} do not: {shown}")
    return Check(name, "passed", f"all {count}")
