"""Settings for all tests."""

from __future__ import annotations

from hypothesis import settings

# The same examples in every run, and no time limit for one: a busy machine is no failure.
settings.register_profile("suite", derandomize=True, deadline=None)
settings.load_profile("suite")
