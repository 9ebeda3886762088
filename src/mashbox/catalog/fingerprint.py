"""The SHA-256 of a model's weights, remembered so that a large file is read once."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Sequence
from pathlib import Path

from mashbox import config

_BLOCK = 1 << 20


def weights_sha256(paths: Sequence[Path], stop: threading.Event) -> str:
    """One digest for all parts, in order. Raises OSError when a part cannot be read or `stop` is set.

    Kept in the cache directory under the files' paths, sizes and times of change.
    """
    stats = [(str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns) for path in paths]
    key = hashlib.sha256(json.dumps(stats).encode()).hexdigest()
    note = config.cache_dir() / "fingerprints" / key
    if note.is_file() and len(known := note.read_text()) == 64:
        return known
    digest = _read(paths, stop)
    note.parent.mkdir(parents=True, exist_ok=True)
    note.write_text(digest)
    return digest


def _read(paths: Sequence[Path], stop: threading.Event) -> str:
    digest = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            while block := file.read(_BLOCK):
                if stop.is_set():
                    raise InterruptedError("stopped while the weights were read")
                digest.update(block)
    return digest.hexdigest()
