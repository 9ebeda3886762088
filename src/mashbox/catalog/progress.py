"""Telling the user how a download goes: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

from typing import Protocol

from rich.console import Console
from rich.filesize import decimal
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)


class Reporter(Protocol):
    """What a download tells. `begin` may come again for the same file when it starts over."""

    def note(self, line: str) -> None:
        """One plain sentence for the user."""
        ...

    def begin(self, name: str, total: int | None, done: int) -> None:
        """A file starts: `total` bytes if known, of which `done` are already here."""
        ...

    def advance(self, count: int) -> None:
        """`count` more bytes have come."""
        ...

    def end(self) -> None:
        """The file has ended, well or badly."""
        ...


class SilentReporter:
    """Tells nothing."""

    def note(self, line: str) -> None: ...

    def begin(self, name: str, total: int | None, done: int) -> None: ...

    def advance(self, count: int) -> None: ...

    def end(self) -> None: ...


class LineReporter:
    """Plain lines: one at the start, one for every quarter of the file."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._total: int | None = None
        self._done = 0

    def note(self, line: str) -> None:
        self._console.print(line, highlight=False, markup=False, soft_wrap=True)

    def begin(self, name: str, total: int | None, done: int) -> None:
        self._total, self._done = total, done
        size = f" ({decimal(total)})" if total else ""
        verb = f"Continuing {name}{size} after {decimal(done)}" if done else f"Downloading {name}{size}"
        self.note(verb)

    def advance(self, count: int) -> None:
        before, self._done = self._done, self._done + count
        if not self._total:
            return
        quarters = self._done * 4 // self._total
        if quarters > before * 4 // self._total:
            self.note(f"  {quarters * 25} % of {decimal(self._total)}")

    def end(self) -> None:
        self._total = None


class BarReporter:
    """A progress bar with speed and time left."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bar: Progress | None = None
        self._task: TaskID | None = None

    def note(self, line: str) -> None:
        self._console.print(line, highlight=False, markup=False, soft_wrap=True)

    def begin(self, name: str, total: int | None, done: int) -> None:
        self.end()
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=self._console,
        )
        self._task = self._bar.add_task(name, total=total, completed=done)
        self._bar.start()

    def advance(self, count: int) -> None:
        if self._bar is not None and self._task is not None:
            self._bar.advance(self._task, count)

    def end(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


def reporter_for(console: Console) -> Reporter:
    """A bar when the console is a terminal, plain lines otherwise."""
    return BarReporter(console) if console.is_terminal else LineReporter(console)
