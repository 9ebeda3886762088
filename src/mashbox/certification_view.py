"""How the certification gate looks on a terminal, and in a file."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.status import Status
from rich.table import Table

from mashbox.engine.certificate import Certificate, Check, Outcome
from mashbox.engine.certify.messages import Doing, Found

_STYLES: dict[Outcome, str] = {"passed": "green", "failed": "bold red", "measured": "cyan"}


class ProgressView:
    """What is being checked now: a line that changes on a terminal, one line after another elsewhere."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._status: Status | None = None

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._status = self._console.status("loading the model")
            self._status.start()
        else:
            self._line("loading the model ...")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._status is not None:
            self._status.stop()

    def show(self, message: Doing | Found) -> None:
        """The gate's news."""
        if isinstance(message, Found):
            self._line(f"{message.check.name}: {message.check.outcome}")
        elif self._status is not None:
            self._status.update(message.what)

    def _line(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)


def show_certificate(console: Console, certificate: Certificate, path: Path | None) -> None:
    """The table of all checks, and what follows from it."""
    table = Table("check", "result", "seen", box=None, pad_edge=False)
    for check in certificate.checks:
        table.add_row(*_cells(check))
    console.print()
    console.print(table)
    console.print()
    for line in (_verdict(certificate), f"Certificate: {path or 'none, as not all was tried'}"):
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def _cells(check: Check) -> tuple[str, str, str]:
    style = _STYLES[check.outcome]
    return check.name, f"[{style}]{check.outcome}[/]", check.figure.replace("[", r"\[")


def _verdict(certificate: Certificate) -> str:
    if not certificate.passed:
        failed = sum(check.outcome == "failed" for check in certificate.checks)
        return f"{certificate.model} did not pass: {failed} of {len(certificate.checks)} checks failed."
    return (
        f"{certificate.model} passed: with --exact, up to {certificate.decode_rows} rows are decoded and "
        f"{certificate.prefill_rows} tokens prefilled together."
    )
