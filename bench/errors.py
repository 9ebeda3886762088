"""What stops a benchmark."""

from __future__ import annotations

from mashbox.errors import MashboxError


class BenchError(MashboxError):
    """A tool is missing, a server misbehaves, or the two sides did not do the same work."""
