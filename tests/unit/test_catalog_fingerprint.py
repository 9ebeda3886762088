"""The weights' digest: computed, remembered, and stopped in the middle."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from mashbox.catalog.fingerprint import weights_sha256


def test_computed_once_and_stopped_when_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASHBOX_CACHE", str(tmp_path / "cache"))
    parts = [tmp_path / "a", tmp_path / "b"]
    for part in parts:
        part.write_bytes(part.name.encode() * 10)
    assert weights_sha256(parts, lambda: True) is None
    wanted = hashlib.sha256(b"a" * 10 + b"b" * 10).hexdigest()
    assert weights_sha256(parts) == wanted
    assert weights_sha256(parts, lambda: True) == wanted
