"""Writes log lines in a thread of its own, so that a slow or stuck reader of them holds nothing up."""

from __future__ import annotations

import logging
import os
import select
import threading
from collections import deque

from mashbox.logs.entry import Entry
from mashbox.logs.lines import Lines

MOST_WAITING = 32 * 2**20
"""Characters that may wait to be written; what comes beyond is lost and counted."""
_RECORD = 500
"""What a waiting line costs besides its text."""
FLUSH_S = 1.0
"""How long the process's end waits for lines to be written."""


class LineWriter(logging.Handler):
    """The root logger's only handler. `lost` counts lines that could not be written.

    `errors_wait_s`: how long whoever logs an error waits until it is written: native code may end the
    process next. Nobody waits twice for a reader that is stuck.
    """

    def __init__(
        self, fd: int, form: Lines, *, most_waiting: int = MOST_WAITING, errors_wait_s: float = 0.0
    ) -> None:
        super().__init__()
        self.setFormatter(form)
        self.lost = 0
        self._fd = fd
        self._most = most_waiting
        self._errors_wait_s = errors_wait_s
        self._stuck = False
        self._told_lost = 0
        self._records: deque[tuple[logging.LogRecord, int]] = deque()
        self._size = 0
        self._busy = False
        self._changed = threading.Condition()
        threading.Thread(target=self._write_all, name="log", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        """Queue a line. Never raises, and waits for nobody but as told above."""
        self._prepare(record)
        size = len(str(record.msg)) + len(record.exc_text or "") + _RECORD
        with self._changed:
            if self._records and self._size + size > self._most:
                self.lost += 1
                return
            self._records.append((record, size))
            self._size += size
            self._changed.notify_all()
        if record.levelno >= logging.ERROR and self._errors_wait_s and not self._stuck:
            self._stuck = not self._drained(self._errors_wait_s)

    def _prepare(self, record: logging.LogRecord) -> None:
        """Take from the record's arguments and exception what is told of them, while they are as they are."""
        if not isinstance(record.msg, Entry):
            try:
                record.msg = record.getMessage()
            except Exception as error:  # a bug in a call to the log ends nothing
                record.msg = f"{record.msg} (its arguments do not fit: {type(error).__name__})"
        record.args = None
        if record.exc_info and self.formatter is not None:
            record.exc_text = self.formatter.formatException(record.exc_info)
        record.exc_info = None

    def flush(self) -> None:
        """Wait until all is written, at most a second."""
        self._drained(FLUSH_S)

    def _drained(self, seconds: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: not self._records and not self._busy, seconds)

    def _write_all(self) -> None:
        while True:
            with self._changed:
                while not self._records:
                    self._changed.wait()
                record, size = self._records.popleft()
                self._busy = True
            written = self._tell_lost() and self._write(self.format(record))
            with self._changed:
                self._stuck = self._busy = False
                self._size -= size
                self.lost += not written
                self._changed.notify_all()

    def _tell_lost(self) -> bool:
        """Say so before the next line when some are missing; False when that cannot be written."""
        lost = self.lost
        if lost == self._told_lost:
            return True
        told = f"log lines lost since the start, as nobody took them: {lost}"
        record = logging.LogRecord(__name__, logging.WARNING, __file__, 0, told, None, None)
        written = self._write(self.format(record))
        if written:
            self._told_lost = lost
        return written

    def _write(self, line: str) -> bool:
        left = memoryview(f"{line}\n".encode(errors="backslashreplace"))
        try:
            while left:
                left = left[self._write_some(left) :]
        except OSError:
            return False
        return True

    def _write_some(self, data: memoryview) -> int:
        """Others may have set the descriptor to not block."""
        try:
            return os.write(self._fd, data)
        except BlockingIOError:
            wait = select.poll()
            wait.register(self._fd, select.POLLOUT)
            wait.poll(1000)
            return 0
