"""What stops a soak before it has found out anything."""

from __future__ import annotations

from mashbox.errors import MashboxError


class SoakError(MashboxError):
    """The soak itself cannot go on: a server does not start, or the reference is not cold."""
