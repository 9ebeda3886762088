"""What processes have in common that run what clients and model files bring: limits, and how they end."""

from __future__ import annotations

import contextlib
import ctypes
import resource
import signal
import sys

MOST_MEMORY = 2 << 30


_SET_PARENT_DEATH_SIGNAL = 1  # of prctl


def restrain(alarm: signal.Signals) -> None:
    """In such a process: give up what it does not need. `alarm` ends it when its time is over.

    So does its parent's death, also while it is stopped.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    for ignored in (signal.SIGINT, signal.SIGTERM):  # the server goes on until it has drained
        signal.signal(ignored, signal.SIG_IGN)
    signal.signal(alarm, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [alarm])
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a dump would hold prompts
    with contextlib.suppress(OSError, ValueError):  # not every system knows this limit
        resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))


def told_end(code: int | None) -> str:
    """A process's return code in words."""
    return f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
