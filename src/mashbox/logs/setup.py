"""The start of a process's log."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
from types import TracebackType
from typing import Any

from mashbox.config import LogConfig
from mashbox.logs.lines import JsonLines, TextLines
from mashbox.logs.writer import LineWriter

TRACE = 5
"""Below DEBUG: what the model's library says of itself, thousands of lines at a load."""
CHATTY = ("httpx2", "httpcore2", "filelock")

log = logging.getLogger(__name__)


def start(config: LogConfig, process: str = "server", *, errors_wait_s: float = 0.0) -> LineWriter:
    """Send everything that is logged, uncaught exceptions too, to standard error in the wanted form."""
    logging.addLevelName(TRACE, "TRACE")
    form = JsonLines if config.json else TextLines
    writer = LineWriter(_standard_error(), form(process, config.prompts), errors_wait_s=errors_wait_s)
    root = logging.getLogger()
    root.handlers = [writer]
    root.setLevel(config.level.upper())
    for name in CHATTY:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))
    # Its warnings are about what single clients send.
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    logging.captureWarnings(True)
    sys.excepthook = _log_end
    threading.excepthook = _log_thread_end
    return writer


def _standard_error() -> int:
    """Its descriptor; when the process was started without one, the number may belong to something else."""
    return os.open(os.devnull, os.O_WRONLY) if sys.stderr is None else sys.stderr.fileno()


def _log_end(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    log.critical("a bug ended the process", exc_info=(kind, error, trace))


def _log_thread_end(ended: threading.ExceptHookArgs) -> None:
    if ended.exc_value is not None:
        log.error("a bug ended a thread", exc_info=ended.exc_value)


def log_loop_failure(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """An event loop's exception handler. The loop's own would also show what tasks hold."""
    log.error("%s", context.get("message", "a bug ended a task"), exc_info=context.get("exception"))
