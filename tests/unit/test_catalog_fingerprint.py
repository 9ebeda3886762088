"""The digest of the weights."""

from __future__ import annotations

import hashlib
import threading
from pathlib import Path

import pytest

from mashbox.catalog.fingerprint import weights_sha256


def test_reading_can_be_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASHBOX_CACHE", str(tmp_path / "cache"))
    weights = tmp_path / "m.gguf"
    weights.write_bytes(b"weights")
    stop = threading.Event()
    stop.set()
    with pytest.raises(OSError, match="stopped"):
        weights_sha256([weights], stop)
    stop.clear()
    assert weights_sha256([weights], stop) == hashlib.sha256(b"weights").hexdigest()
