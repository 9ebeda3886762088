"""Which files make up a model: split parts, and the choice of one quantisation in a repository."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import PurePosixPath

from mashbox.errors import SelectionError

PREFERRED_QUANT = "Q4_K_M"

_PART = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$", re.IGNORECASE)
_NOT_A_MODEL = re.compile(r"(^|[-._])(mmproj|imatrix)([-._]|$)", re.IGNORECASE)


def part_names(name: str) -> tuple[str, ...]:
    """All parts of the model that `name` belongs to, in order; just `name` when it is not split."""
    found = _PART.search(name)
    if found is None:
        return (name,)
    stem, count = name[: found.start()], int(found[2])
    return tuple(f"{stem}-{number:05}-of-{count:05}.gguf" for number in range(1, count + 1))


def model_stem(name: str) -> str:
    """The file's name without directory, `.gguf` and part number."""
    base = PurePosixPath(name).name
    return _PART.sub("", base) if _PART.search(base) else re.sub(r"\.gguf$", "", base, flags=re.IGNORECASE)


def choose(names: Iterable[str], wanted: str | None, where: str) -> tuple[str, ...]:
    """The files, in order, of the one model in `names` that `wanted` means.

    `wanted` is a file name, a quantisation such as Q4_K_M, or None: Q4_K_M if it is there, else the
    only model. `where` names the place in messages. Raises SelectionError with the choices.
    """
    models = _models(names)
    if wanted is not None and wanted.lower().endswith(".gguf"):
        return _by_file(models, wanted, where)
    fitting = _plainest(models, wanted or PREFERRED_QUANT)
    if not fitting and wanted is None:
        fitting = list(models)
    if len(fitting) == 1:
        return models[fitting[0]]
    raise SelectionError(_explain(fitting or list(models), wanted, bool(fitting), where))


def _models(names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """First part -> all parts, for every model in the listing that is there in full."""
    present = {
        name for name in names if name.lower().endswith(".gguf") and ".." not in PurePosixPath(name).parts
    }
    models: dict[str, tuple[str, ...]] = {}
    for name in sorted(present):
        parts = part_names(name)
        if parts[0] == name and present.issuperset(parts) and not _NOT_A_MODEL.search(model_stem(name)):
            models[name] = parts
    return models


def _by_file(models: dict[str, tuple[str, ...]], wanted: str, where: str) -> tuple[str, ...]:
    first = part_names(wanted)[0]
    if first in models:
        return models[first]
    raise SelectionError(_explain(list(models), wanted, False, where))


def _has_quant(name: str, quant: str) -> bool:
    return re.search(rf"(^|[-.]){re.escape(quant)}$", model_stem(name), re.IGNORECASE) is not None


def _plainest(models: dict[str, tuple[str, ...]], quant: str) -> list[str]:
    """The models of this quantisation; of X-Q4_K_M and X-UD-Q4_K_M, or one file and its parts, the first."""
    plainness = {
        first: (len(model_stem(first)), len(parts))
        for first, parts in models.items()
        if _has_quant(first, quant)
    }
    return [first for first, rank in plainness.items() if rank == min(plainness.values())]


def _explain(choices: list[str], wanted: str | None, several: bool, where: str) -> str:
    if not choices:
        return f"{where} has no complete GGUF model."
    fit = f" that {'fit' if several else 'fits'} {wanted}" if wanted else ""
    return (
        f"{where} has {'several models' if several else 'nothing'}{fit}; choose one of: {', '.join(choices)}."
    )
