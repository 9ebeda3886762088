"""How much of a fault a test sees: a little in `make test`, much in `make faults`."""

from __future__ import annotations

from pathlib import Path

import pytest

from mashbox.catalog.resolve import resolve
from tests.model.conftest import DEMO


@pytest.fixture(scope="session")
def long(pytestconfig: pytest.Config) -> bool:
    """Whether this is the long form."""
    return bool(pytestconfig.getoption("--long"))


@pytest.fixture(scope="session")
def demo_file() -> Path:
    """The demo model's file."""
    return resolve(DEMO).paths[0]
