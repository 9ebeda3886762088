"""Settings for all tests."""

from __future__ import annotations

import pytest
from hypothesis import settings

# The same examples in every run, and no time limit for one: a busy machine is no failure.
settings.register_profile("suite", derandomize=True, deadline=None)
settings.load_profile("suite")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="run tests/faults in its long form: make faults")
