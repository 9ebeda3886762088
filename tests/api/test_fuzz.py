"""Requests made from the server's own document, good and bad, on a real port; `make fuzz` makes more."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.api.conftest import Server
from tests.api.fuzz import fuzz


@pytest.mark.timeout(300)
def test_the_document_is_kept_to(server: Server, tmp_path: Path) -> None:
    before = server.health()["worker_restarts"]
    result = fuzz(f"http://127.0.0.1:{server.port}", tmp_path, examples=10, seed=1, capture=True)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "Selected: 12/12" in result.stdout
    assert server.health()["worker_restarts"] == before
