"""What the certification gate found about one build, model and set of settings, kept as a file.

A certificate counts for exactly its `Subject`: file names are made of a hash, but the subject is compared.
"""

from __future__ import annotations

import hashlib
import os
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryFile
from typing import Annotated, Literal

import msgspec

from mashbox.config import ModelConfig, cache_dir

GATE = 3
"""Raise it when the gate asks for more: earlier certificates count no longer."""

FULL_CONTEXT = 2048
"""Tokens per slot that all checks have room in."""

LEAST_CONTEXT = 512
"""Tokens per slot that the checks need at least."""

VERSION = version("mashbox")
"""Read once: health asks for the certificate again and again."""

Outcome = Literal["passed", "failed", "measured"]
Standing = Literal["passed", "failed", "none"]


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """What a certificate is about: whatever may change the arithmetic. `weights` is their SHA-256."""

    build: str
    weights: str
    threads: int
    gpu_layers: int
    cache_type_k: str
    cache_type_v: str
    rope_scaling: str
    gate: int = GATE
    version: str = ""
    """Of mashbox: its cache and its loop are a part of what was tried."""

    @classmethod
    def of(cls, build: str, weights: str, model: ModelConfig) -> Subject:
        """The subject that a model with these settings is; `build` as in `ModelFacts`."""
        return cls(
            build=build,
            weights=weights,
            threads=model.threads,
            gpu_layers=model.gpu_layers,
            cache_type_k=model.cache_type_k,
            cache_type_v=model.cache_type_v,
            rope_scaling=model.rope_scaling,
            version=VERSION,
        )


class Check(msgspec.Struct, frozen=True):
    """One line of the table. What is only "measured" cannot fail; `figure` says what was seen."""

    name: str
    outcome: Outcome
    figure: str


class Certificate(msgspec.Struct, frozen=True, kw_only=True):
    """The gate's result. `decode_rows` and `prefill_rows` are what exact mode may use: see `ModelConfig`."""

    subject: Subject
    model: str
    made: str
    """Date and time, ISO 8601, UTC."""
    context: int
    """Tokens per slot that the checks ran with."""
    passed: bool
    decode_rows: Annotated[int, msgspec.Meta(ge=1)]
    prefill_rows: Annotated[int, msgspec.Meta(ge=1)]
    checks: tuple[Check, ...]


def path_of(subject: Subject, context: int) -> Path:
    """Where the certificate of a subject is kept; one of a short context stands beside a full one."""
    key = hashlib.sha256(msgspec.json.encode(subject)).hexdigest()[:32]
    extent = "" if context >= FULL_CONTEXT else "-short"
    return cache_dir() / "certificates" / f"{key}{extent}.json"


def prepare() -> Path:
    """Make sure that a certificate can be written, and return the folder. Raises OSError."""
    folder = cache_dir() / "certificates"
    folder.mkdir(parents=True, exist_ok=True)
    TemporaryFile(dir=folder).close()
    return folder


def write(certificate: Certificate) -> Path:
    """Keep a certificate in place of an earlier one; readers see one or the other. Raises OSError."""
    path = path_of(certificate.subject, certificate.context)
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(f".{os.getpid()}")
    draft.write_bytes(msgspec.json.format(msgspec.json.encode(certificate)))
    draft.replace(path)
    return path


def find(subject: Subject, context: int) -> Certificate | None:
    """The certificate of exactly this subject; None without one, or when its file cannot be read.

    One from a short context counts for servers whose context is not longer than that.
    """
    for extent in (FULL_CONTEXT, context):
        found = _read(path_of(subject, extent))
        if found and found.subject == subject and found.context >= min(context, FULL_CONTEXT):
            return found
    return None


def _read(path: Path) -> Certificate | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Certificate)
    except (OSError, msgspec.MsgspecError):
        return None


def standing(subject: Subject, context: int) -> Standing:
    """Whether the subject passed the gate, for a server with so many tokens of context per slot."""
    found = find(subject, context)
    if found is None:
        return "none"
    return "passed" if found.passed else "failed"
