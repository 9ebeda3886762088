"""A file on its way: `<name>.part`, and `<name>.part.json` that says whose bytes these are."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from mashbox.errors import ConfigError

CHUNK = 1 << 20


@contextmanager
def writing(target: Path) -> Iterator[None]:
    """Turn a failed write near `target` into a ConfigError with a plain sentence."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise ConfigError(f"The disk is full: {target.name} does not fit in {target.parent}.") from error
        raise ConfigError(f"{target.parent} cannot be written: {error.strerror or error}.") from error


class _PartNote(msgspec.Struct, frozen=True):
    url: str
    sha256: str | None
    etag: str | None


class Partial:
    """The bytes so far and their checksum. Open it with `with`; `publish` gives the file its name.

    An earlier part is taken over when its note has the same checksum, or, for a file without one,
    the same address and a server's tag to ask with. Every method may raise ConfigError.
    """

    def __init__(self, target: Path, url: str, sha256: str | None) -> None:
        self.target = target
        self.size = 0
        self.resumed = False
        """Whether the part holds bytes of an earlier run."""
        self._wanted = _PartNote(url, sha256, None)
        self._path = target.with_name(target.name + ".part")
        self._note_path = target.with_name(target.name + ".part.json")
        self._hash = hashlib.sha256()

    def __enter__(self) -> Partial:
        with writing(self.target):
            self.resumed = self._take_over()
            self._file = self._path.open("r+b" if self.resumed else "w+b")
            while chunk := self._file.read(CHUNK):
                self._hash.update(chunk)
                self.size += len(chunk)
            if not self.resumed:
                self._write_note(None)
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    @property
    def sha256(self) -> str:
        """Of the bytes so far, in hex."""
        return self._hash.hexdigest()

    def _take_over(self) -> bool:
        try:
            note = msgspec.json.decode(self._note_path.read_bytes(), type=_PartNote)
        except (FileNotFoundError, msgspec.DecodeError):
            return False
        if self._wanted.sha256 is not None:
            same = note.sha256 == self._wanted.sha256
        else:
            same = note.url == self._wanted.url and note.etag is not None
        if same and self._path.is_file():
            self._wanted = msgspec.structs.replace(self._wanted, etag=note.etag)
            return True
        return False

    def _write_note(self, etag: str | None) -> None:
        strong = None if etag is None or etag.startswith("W/") else etag
        self._wanted = msgspec.structs.replace(self._wanted, etag=strong)
        self._note_path.write_bytes(msgspec.json.encode(self._wanted))

    def range_headers(self) -> dict[str, str]:
        """The request headers that ask for the rest; the tag guards a file without a checksum."""
        if not self.size:
            return {}
        wanted = self._wanted
        guard = {"If-Range": wanted.etag} if wanted.etag and wanted.sha256 is None else {}
        return {"Range": f"bytes={self.size}-", **guard}

    def append(self, chunk: bytes) -> None:
        """Write more bytes."""
        with writing(self.target):
            self._file.write(chunk)
        self._hash.update(chunk)
        self.size += len(chunk)

    def restart(self, etag: str | None = None) -> None:
        """Forget the bytes so far; `etag` is the server's tag of the version that comes now."""
        with writing(self.target):
            self._file.seek(0)
            self._file.truncate()
            self._write_note(etag)
        self._hash, self.size, self.resumed = hashlib.sha256(), 0, False

    def discard(self) -> None:
        """Remove the part and its note."""
        with writing(self.target):
            self._path.unlink(missing_ok=True)
            self._note_path.unlink(missing_ok=True)

    def publish(self) -> None:
        """Give the finished file its name."""
        with writing(self.target):
            self._file.flush()
            os.fsync(self._file.fileno())
            self._path.replace(self.target)
            self._note_path.unlink(missing_ok=True)
