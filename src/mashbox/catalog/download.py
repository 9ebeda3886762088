"""Fetch one file over HTTP: resumable, checked, put in place in one step.

A finished and checked file is renamed to its name, so whatever bears the name is whole.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import filelock
import httpx2
from rich.filesize import decimal

from mashbox.catalog.partial import Partial, writing
from mashbox.catalog.progress import Reporter
from mashbox.catalog.transport import TIMEOUT, reason, status_text
from mashbox.errors import ConfigError, ModelFileError, SourceError

RETRY_PAUSES: Sequence[float] = (0.5, 1.0, 2.0)
"""Seconds between tries after a connection was cut; a source that never answered is not tried again."""


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file to fetch. `size` is in bytes; `name` and `host` are for messages."""

    url: str
    name: str
    host: str
    size: int | None = None
    sha256: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


@contextmanager
def exclusive(target: Path, reporter: Reporter) -> Iterator[None]:
    """Hold the right to write `target`, so that two processes do not download the same file."""
    with writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        lock = filelock.FileLock(target.with_name(f".{target.name}.lock"))
        try:
            lock.acquire(timeout=0)
        except filelock.Timeout:
            reporter.note(f"Another process is downloading {target.name}; waiting for it.")
            lock.acquire()
    try:
        yield
    finally:
        lock.release()


def require_space(target: Path, needed: int) -> None:
    """Raise ConfigError when fewer than `needed` bytes are free where `target` will be."""
    free = shutil.disk_usage(target.parent).free
    if needed > free:
        raise ConfigError(
            f"The disk is too full for {target.name}: {decimal(needed)} needed, "
            f"{decimal(free)} free in {target.parent}."
        )


def download(
    file: RemoteFile,
    target: Path,
    client: httpx2.Client,
    reporter: Reporter,
    pauses: Sequence[float] = RETRY_PAUSES,
) -> None:
    """Fetch `file` to `target`, going on from an earlier part of the same file where the server can.

    The caller holds `exclusive(target)`. Raises SourceError when the source refuses or stops
    answering (the part is kept), ModelFileError when the content is wrong (the part is removed),
    ConfigError when the disk does not take it.
    """
    with Partial(target, file.url, file.sha256) as part:
        _fetch(file, part, client, reporter, pauses)
        if part.resumed and not _is_right(file, part):
            part.restart()  # the bytes of the earlier run were bad: one clean try
            _fetch(file, part, client, reporter, pauses)
        if not _is_right(file, part):
            part.discard()
            raise ModelFileError(f"{file.name} from {file.host} has the wrong checksum; it was not kept.")
        part.publish()


def _is_right(file: RemoteFile, part: Partial) -> bool:
    return file.size in (None, part.size) and file.sha256 in (None, part.sha256)


class _StartOver(Exception):
    """The server cannot continue this part; it has been emptied."""


def _fetch(
    file: RemoteFile, part: Partial, client: httpx2.Client, reporter: Reporter, pauses: Sequence[float]
) -> None:
    """Fill `part` to the end, over several connections if they are cut."""
    most = part.size
    pauses_left: Iterator[float] = iter(())
    while part.size != file.size:
        try:
            return _stream(file, part, client, reporter)
        except _StartOver:
            continue
        except httpx2.RequestError as error:
            if part.size > most:
                most, pauses_left = part.size, iter(pauses)
            if (pause := next(pauses_left, None)) is None:
                raise _silent(file, part, error) from error
        finally:
            reporter.end()
        time.sleep(pause)
    return None


def _silent(file: RemoteFile, part: Partial, error: Exception) -> SourceError:
    kept = f"; the first {decimal(part.size)} are kept for the next try" if part.size else ""
    return SourceError(f"{file.host} does not send {file.name} ({reason(error)}){kept}.")


def _stream(file: RemoteFile, part: Partial, client: httpx2.Client, reporter: Reporter) -> None:
    """One connection: append what comes. Raises httpx2.RequestError when it is cut."""
    headers = {**file.headers, "Accept-Encoding": "identity", **part.range_headers()}
    with client.stream("GET", file.url, headers=headers, timeout=TIMEOUT, follow_redirects=True) as response:
        _accept(file, part, response)
        length = response.headers.get("Content-Length", "")
        total = part.size + int(length) if length.isdigit() else file.size
        if total is not None:
            require_space(part.target, total - part.size)
        reporter.begin(file.name, total, part.size)
        for chunk in response.iter_bytes():  # with a chunk size, the bytes before a cut would be lost
            part.append(chunk)
            reporter.advance(len(chunk))
    if file.size is not None and part.size < file.size:
        raise httpx2.RemoteProtocolError(f"the connection ended after {part.size} of {file.size} bytes")


def _accept(file: RemoteFile, part: Partial, response: httpx2.Response) -> None:
    """Go on after the part or from the beginning, as the server says; raise SourceError if it refuses."""
    status = response.status_code
    if status == 206 and response.headers.get("Content-Range", "").startswith(f"bytes {part.size}-"):
        return
    if status == 200:
        part.restart(response.headers.get("ETag"))
        return
    if part.size and status in (206, 416):
        part.restart()
        raise _StartOver
    raise SourceError(f"{file.host} refuses {file.name}: {status_text(status)}.")
