"""The two forms of a log line."""

from __future__ import annotations

import json
import logging
import time
from datetime import UTC, datetime
from types import TracebackType

from mashbox.logs.entry import Entry
from mashbox.logs.escape import escaped
from mashbox.logs.failure import told_failure

Failure = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


class Lines(logging.Formatter):
    """What both forms share: which process speaks, and whether failures may quote content."""

    def __init__(self, process: str, content: bool) -> None:
        super().__init__()
        self._process = process
        self._content = content

    def formatException(self, ei: Failure) -> str:  # noqa: N802
        """See `told_failure`."""
        return "" if ei[1] is None else told_failure(ei[1], self._content)


class TextLines(Lines):
    """For people: local time, level, message. Lines that belong to the one before begin with a bar."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, or several."""
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.created))
        speaker = "" if self._process == "server" else f"{self._process}: "
        text = escaped("\n".join(filter(None, (str(record.msg), record.exc_text))), keep="\n\t")
        return f"{at} {record.levelname:<7} {speaker}" + text.replace("\n", "\n  | ")


class JsonLines(Lines):
    """For machines: one JSON object per line, in ASCII."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        entry = record.msg if isinstance(record.msg, Entry) else Entry(str(record.msg), "")
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        told: dict[str, object] = {
            "time": at.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "process": self._process,
            "logger": record.name,
            "message": entry.title,
            **entry.fields,
        }
        if record.exc_text:
            told["exception"] = record.exc_text
        return json.dumps(told)
