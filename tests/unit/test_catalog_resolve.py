from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants

from mashbox.catalog.entries import (
    DEFAULT_MODEL,
    Catalog,
    CatalogEntry,
    HubSource,
    Recommended,
    WheelMember,
    WheelSource,
    builtin_catalog,
)
from mashbox.catalog.resolve import ModelRow, ResolvedModel, list_models, models_dir, pull, resolve
from mashbox.engine.types import Sampling
from mashbox.errors import ConfigError, ModelFileError, SourceError
from tests.unit.catalog_support import FileServer, Recorder, Resource, build_gguf, file_server, llama_metadata

COMMIT = "0123456789abcdef0123456789abcdef01234567"
CONTENT = build_gguf(llama_metadata())
PARTS = [f"big/Tiny-Q8_0-0000{n}-of-00002.gguf" for n in (1, 2)]

Publish = Callable[[str, dict[str, bytes]], None]


@pytest.fixture(autouse=True)
def own_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASHBOX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    monkeypatch.setenv("HF_TOKEN", "hf_secret")


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[FileServer]:
    with file_server() as server:
        monkeypatch.setattr(constants, "ENDPOINT", server.url)
        template = server.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        yield server


@pytest.fixture
def publish(hub: FileServer) -> Publish:
    def publish(repo: str, files: dict[str, bytes]) -> None:
        siblings = []
        for name, content in files.items():
            sha256 = hashlib.sha256(content).hexdigest()
            lfs = {"sha256": sha256, "size": len(content), "pointerSize": 130}
            siblings.append({"rfilename": name, "size": len(content), "blobId": "b", "lfs": lfs})
            hub.resources[f"/{repo}/resolve/{COMMIT}/{name}"] = Resource(content)
        listing = {"id": repo, "sha": COMMIT, "siblings": siblings, "private": False, "tags": []}
        hub.resources[f"/api/models/{repo}"] = Resource(
            json.dumps(listing).encode(), content_type="application/json"
        )

    return publish


def catalog_of(*sources: HubSource | WheelSource, **more: Recommended) -> Catalog:
    return {"tiny": CatalogEntry("tiny", "A tiny model", sources, size=7, **more)}


def nothing_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")


# --- from the hub ----------------------------------------------------------------------------


def test_hub_repository_with_the_preferred_quantisation(hub: FileServer, publish: Publish) -> None:
    publish("o/r", {"Tiny-Q4_K_M.gguf": CONTENT, "Tiny-Q8_0.gguf": b"other"})
    path = models_dir() / "o/r/Tiny-Q4_K_M.gguf"
    assert resolve("hf:o/r") == ResolvedModel((path,), "Tiny-Q4_K_M", None)
    assert path.read_bytes() == CONTENT
    assert {request.authorization for request in hub.requests} == {"Bearer hf_secret"}


def test_hub_file_and_split_quantisation(publish: Publish) -> None:
    publish("o/r", {"a.gguf": CONTENT, PARTS[1]: b"second", PARTS[0]: b"first"})
    assert resolve("hf:o/r:a.gguf").model_id == "a"
    split = resolve("hf:o/r:q8_0")
    assert split.model_id == "Tiny-Q8_0"
    assert [path.read_bytes() for path in split.paths] == [b"first", b"second"]


def test_the_second_time_nothing_is_asked(hub: FileServer, publish: Publish) -> None:
    publish("o/r", {"Tiny-Q4_K_M.gguf": CONTENT})
    first = resolve("hf:o/r")
    hub.requests.clear()
    assert resolve("hf:o/r") == first
    assert resolve("hf:o/r:Q4_K_M") == first
    assert hub.requests == []


def test_another_quantisation_on_disk_serves_only_offline(
    publish: Publish, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish("o/r", {"Tiny-Q4_K_M.gguf": CONTENT, "Tiny-Q8_0.gguf": CONTENT})
    resolve("hf:o/r:Q8_0")
    online = resolve("hf:o/r")
    assert online.model_id == "Tiny-Q4_K_M"
    online.paths[0].unlink()
    nothing_answers(monkeypatch)
    assert resolve("hf:o/r").model_id == "Tiny-Q8_0"


def test_a_file_in_the_hubs_own_cache_is_used_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "hub/models--o--r"
    snapshot = folder / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (folder / "refs").mkdir()
    (folder / "refs/main").write_text(COMMIT)
    (snapshot / "Tiny-Q4_K_M.gguf").write_bytes(CONTENT)
    (snapshot / "Tiny-Q8_0.gguf").symlink_to("../../blobs/gone")
    nothing_answers(monkeypatch)
    assert resolve("hf:o/r").paths == (snapshot / "Tiny-Q4_K_M.gguf",)
    with pytest.raises(SourceError, match="cannot be reached"):
        resolve("hf:o/r:Q8_0")


def test_an_incomplete_split_on_disk_is_completed(hub: FileServer, publish: Publish) -> None:
    publish("o/r", {PARTS[0]: b"first", PARTS[1]: b"second"})
    paths = resolve("hf:o/r:Q8_0").paths
    paths[1].unlink()
    hub.requests.clear()
    assert resolve("hf:o/r:Q8_0").paths == paths
    assert paths[1].read_bytes() == b"second"
    assert [request.path for request in hub.requests if ".gguf" in request.path] == [
        f"/o/r/resolve/{COMMIT}/{PARTS[1]}"
    ]


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        (
            404,
            "RepoNotFound",
            "Hugging Face has no public repository o/r; a private one needs your access token",
        ),
        (401, "", "Hugging Face has no public repository o/r"),
        (403, "GatedRepo", "o/r needs its terms accepted on Hugging Face"),
        (500, "", r"Hugging Face refuses o/r: an error of the server \(HTTP 500\)"),
    ],
)
def test_hub_refusals(hub: FileServer, status: int, code: str, message: str) -> None:
    hub.resources["/api/models/o/r"] = Resource(b"{}", status=status, headers={"X-Error-Code": code})
    with pytest.raises(SourceError, match=message):
        resolve("hf:o/r")
    assert len(hub.requests) == 1


def test_a_hub_that_is_something_else(hub: FileServer) -> None:
    hub.resources["/api/models/o/r"] = Resource(b"<html>Please log in to this network</html>")
    with pytest.raises(SourceError, match="with something else than its files"):
        resolve("hf:o/r")


def test_the_hub_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(SourceError, match="switched off by HF_HUB_OFFLINE"):
        resolve("hf:o/r")


def test_a_hub_that_refuses_the_connection_costs_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing_answers(monkeypatch)
    before = time.monotonic()
    with pytest.raises(SourceError, match=r"Hugging Face cannot be reached \(Connection refused\)"):
        resolve("hf:o/r")
    assert time.monotonic() - before < 1


@pytest.mark.parametrize("name", ["hf:", "hf:only", "hf:a/b/c", "hf:../..", "hf:a/b:"])
def test_malformed_hub_names(name: str) -> None:
    with pytest.raises(ConfigError, match="should look like hf:owner/repo"):
        resolve(name)


# --- from the catalog ------------------------------------------------------------------------


def test_sources_are_tried_in_order_and_told_in_one_line(publish: Publish) -> None:
    publish("second/r", {"Tiny-Q4_K_M.gguf": CONTENT})
    catalog = catalog_of(HubSource("first/r"), HubSource("second/r"), sampling=Recommended(0.6, top_k=20))
    recorder = Recorder()
    found = resolve("Tiny", recorder, catalog)
    assert found.model_id == "tiny"
    assert found.sampling == Sampling(temperature=0.6, top_k=20)
    assert found.paths[0].read_bytes() == CONTENT
    assert len(recorder.notes) == 1
    assert recorder.notes[0].startswith("Hugging Face has no public repository first/r")
    assert recorder.notes[0].endswith("Trying the next source.")


def test_wrong_weights_fall_through_too(publish: Publish) -> None:
    publish("first/r", {"Tiny-Q4_K_M.gguf": b"wrong"})
    publish("second/r", {"Tiny-Q4_K_M.gguf": CONTENT})
    pinned = hashlib.sha256(CONTENT).hexdigest()
    catalog = catalog_of(HubSource("first/r", sha256=pinned), HubSource("second/r", sha256=pinned))
    assert resolve("tiny", catalog=catalog).paths == (models_dir() / "second/r/Tiny-Q4_K_M.gguf",)


def test_all_sources_refuse(hub: FileServer) -> None:
    with pytest.raises(SourceError) as caught:
        resolve("tiny", catalog=catalog_of(HubSource("first/r"), HubSource("second/r")))
    assert "tiny could not be downloaded: " in str(caught.value)
    assert "first/r" in str(caught.value)
    assert "second/r" in str(caught.value)


def test_wheels_on_disk_need_no_index(hub: FileServer) -> None:
    source = WheelSource("tiny.gguf", "0" * 64, (WheelMember("p", "1", "m"),))
    catalog = catalog_of(source)
    assert list_models(catalog) == [ModelRow("tiny", "A tiny model", 7, downloaded=False)]
    target = models_dir() / "tiny/tiny.gguf"
    target.parent.mkdir(parents=True)
    target.write_bytes(CONTENT)
    assert resolve("tiny", catalog=catalog).paths == (target,)
    assert list_models(catalog) == [ModelRow("tiny", "A tiny model", 7, downloaded=True)]


def test_pull(publish: Publish) -> None:
    publish("o/r", {"a.gguf": CONTENT})
    assert pull("hf:o/r:a.gguf").paths[0].read_bytes() == CONTENT
    with pytest.raises(ConfigError, match=r"my\.gguf is a file, so there is nothing to download"):
        pull("my.gguf")


def test_the_built_in_catalog_is_sound() -> None:
    catalog = builtin_catalog()
    assert DEFAULT_MODEL in catalog
    assert all(key == entry.id == entry.id.lower() for key, entry in catalog.items())
    assert all(entry.sources and entry.size for entry in catalog.values())
    lengths = {len(entry.description) < 80 for entry in catalog.values()}
    assert lengths == {True}


# --- from a path -----------------------------------------------------------------------------


def test_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "My Model.v2.gguf"
    path.write_bytes(CONTENT)
    assert resolve(str(path)) == ResolvedModel((path,), "My Model.v2")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert resolve("~/My Model.v2.gguf").paths == (path,)
    other = path.rename(tmp_path / "without-suffix")
    assert resolve(str(other)) == ResolvedModel((other,), "without-suffix")


def test_any_part_names_the_whole(tmp_path: Path) -> None:
    paths = tuple(tmp_path / f"m-0000{n}-of-00003.gguf" for n in (1, 2, 3))
    for path in paths:
        path.write_bytes(CONTENT)
    assert resolve(str(paths[1])) == ResolvedModel(paths, "m")
    paths[2].unlink()
    with pytest.raises(ModelFileError, match=r"one of 3 parts; missing beside it: m-00003-of-00003\.gguf"):
        resolve(str(paths[1]))


def test_paths_that_are_no_model(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"none\.gguf does not exist"):
        resolve(str(tmp_path / "none.gguf"))
    with pytest.raises(ModelFileError, match="is a directory; name the"):
        resolve(str(tmp_path))


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("qwen3-8", "Did you mean qwen3-8b?"),
        ("smolm2-135m", "Did you mean smollm2-135m"),
        ("owner/repo", "For a repository on Hugging Face write hf:owner/repo."),
    ],
)
def test_unknown_names(name: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve(name)
    assert str(caught.value).startswith(f"There is no model {name}. {hint}")
    assert "`mashbox list` lists" in str(caught.value)


def test_a_pipe_is_no_model(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "m.gguf")
    with pytest.raises(ModelFileError, match=r"m\.gguf is not a regular file"):
        resolve(str(tmp_path / "m.gguf"))
