"""The catalog: short names for models, where their weights come from and how their makers sample."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files

import msgspec

from mashbox.engine.types import Sampling

DEFAULT_MODEL = "smollm2-135m"
"""What a first try runs: small, quick to fetch, good enough to see everything work."""


class HubSource(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="hub"):
    """A GGUF repository on Hugging Face; `wanted` is a file, a quantisation, or None for the usual choice."""

    repo: str
    wanted: str | None = None
    sha256: str | None = None
    """Of the one file, where it is pinned; otherwise the hub's own checksum is used."""


class WheelMember(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One file inside a wheel on a Python package index."""

    project: str
    version: str
    member: str


class WheelSource(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="wheels"):
    """Weights that are shipped in wheels: the members, one after another, are the file."""

    file: str
    sha256: str
    members: tuple[WheelMember, ...]


Source = HubSource | WheelSource


class Recommended(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Sampling from the model's own card."""

    temperature: float
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0

    def sampling(self) -> Sampling:
        """The same values in the engine's vocabulary."""
        return Sampling(
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=self.top_k,
            min_p=self.min_p,
            repetition_penalty=self.repetition_penalty,
        )


class CatalogEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One model. `size` is in bytes: exact where a checksum is pinned, otherwise rounded."""

    id: str
    description: str
    sources: tuple[Source, ...]
    """Tried in this order."""
    size: int | None = None
    sampling: Recommended | None = None


Catalog = Mapping[str, CatalogEntry]


@cache
def builtin_catalog() -> Catalog:
    """The catalog that comes with mashbox, by id, in display order."""
    text = files("mashbox.catalog").joinpath("models.json").read_bytes()
    entries = msgspec.json.decode(text, type=list[CatalogEntry])
    return {entry.id: entry for entry in entries}
