"""The SHA-256 of a model's weights, remembered so that a large file is read once."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path

from mashbox import config

_BLOCK = 1 << 20


def weights_sha256(paths: Sequence[Path], stopped: Callable[[], bool] = lambda: False) -> str | None:
    """One digest for all parts, in order; None once `stopped`. Raises OSError when a part cannot be read.

    Kept in the cache directory under the files' paths, sizes and times of change.
    """
    stats = [(str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns) for path in paths]
    key = hashlib.sha256(json.dumps(stats).encode()).hexdigest()
    note = config.cache_dir() / "fingerprints" / key
    if note.is_file() and len(known := note.read_text()) == 64:
        return known
    digest = _read(paths, stopped)
    if digest is None:
        return None
    note.parent.mkdir(parents=True, exist_ok=True)
    note.write_text(digest)
    return digest


def _read(paths: Sequence[Path], stopped: Callable[[], bool]) -> str | None:
    digest = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            while block := file.read(_BLOCK):
                if stopped():
                    return None
                digest.update(block)
    return digest.hexdigest()
