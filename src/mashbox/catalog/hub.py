"""GGUF repositories on Hugging Face: find the files, here or there, and fetch them.

`huggingface_hub` brings address, token, proxies and the offline switch. Listing and bytes go through
its session but not its functions: those tell the hub about the calling program, start a cut download
over, and repeat a refused one for 23 s.
"""

from __future__ import annotations

from pathlib import Path

import httpx2
import msgspec
from huggingface_hub import constants, get_session, get_token, hf_hub_url
from huggingface_hub.errors import OfflineModeIsEnabled

from mashbox.catalog.download import RemoteFile, download, exclusive
from mashbox.catalog.entries import HubSource
from mashbox.catalog.progress import Reporter
from mashbox.catalog.selection import PREFERRED_QUANT, choose
from mashbox.catalog.transport import TIMEOUT, reason, status_text
from mashbox.errors import SelectionError, SourceError

HOST = "Hugging Face"


class _Checksum(msgspec.Struct, frozen=True):
    sha256: str


class _HubFile(msgspec.Struct, frozen=True):
    rfilename: str
    size: int | None = None
    lfs: _Checksum | None = None


class _Repository(msgspec.Struct, frozen=True):
    sha: str
    siblings: list[_HubFile]


def local_files(source: HubSource, root: Path, *, settle: bool = False) -> tuple[Path, ...] | None:
    """The model's files if they are on this machine: in our directory or in Hugging Face's own cache.

    Where the source names no quantisation only the preferred one counts, or, to `settle` for what
    is there, the only model.
    """
    wanted = source.wanted or (None if settle else PREFERRED_QUANT)
    for directory in (repo_directory(root, source.repo), _cached_snapshot(source.repo)):
        if directory is None or not directory.is_dir():
            continue
        names = [
            path.relative_to(directory).as_posix() for path in directory.rglob("*.gguf") if path.is_file()
        ]
        try:
            return tuple(directory / name for name in choose(names, wanted, source.repo))
        except SelectionError:
            continue
    return None


def repo_directory(root: Path, repo: str) -> Path:
    """Where our own downloads of a repository lie below the model directory."""
    return root.joinpath(*repo.split("/"))


def _cached_snapshot(repo: str) -> Path | None:
    folder = Path(constants.HF_HUB_CACHE) / f"models--{repo.replace('/', '--')}"
    try:
        return folder / "snapshots" / (folder / "refs" / "main").read_text().strip()
    except OSError:
        return None


def fetch_from_hub(source: HubSource, root: Path, reporter: Reporter) -> tuple[Path, ...]:
    """Download the model's files below `root`. Raises ConfigError or one of its kinds."""
    headers = {"Authorization": f"Bearer {token}"} if (token := get_token()) else {}
    listing = _repository(source.repo, headers)
    files = {file.rfilename: file for file in listing.siblings}
    names = choose(files, source.wanted, f"{source.repo} on {HOST}")
    targets = tuple(repo_directory(root, source.repo) / name for name in names)
    for name, target in zip(names, targets, strict=True):
        lfs = files[name].lfs
        file = RemoteFile(
            url=hf_hub_url(source.repo, name, revision=listing.sha),
            name=name,
            host=HOST,
            size=files[name].size,
            sha256=source.sha256 or (lfs.sha256 if lfs else None),
            headers=headers,
        )
        with exclusive(target, reporter):
            if not target.exists():
                download(file, target, get_session(), reporter)
    return targets


def _repository(repo: str, headers: dict[str, str]) -> _Repository:
    """The listing of a repository with sizes and checksums; one request, never repeated."""
    url = f"{constants.ENDPOINT}/api/models/{repo}"
    try:
        response = get_session().get(url, params={"blobs": "true"}, headers=headers, timeout=TIMEOUT)
        _check(repo, response)
        return msgspec.json.decode(response.content, type=_Repository)
    except OfflineModeIsEnabled as error:
        raise SourceError(f"{HOST} is switched off by HF_HUB_OFFLINE.") from error
    except httpx2.RequestError as error:
        raise SourceError(f"{HOST} cannot be reached ({reason(error)}).") from error
    except msgspec.DecodeError as error:
        raise SourceError(f"{HOST} answered for {repo} with something else than its files.") from error


def _check(repo: str, response: httpx2.Response) -> None:
    status, code = response.status_code, response.headers.get("X-Error-Code")
    if code == "GatedRepo":
        raise SourceError(f"{repo} needs its terms accepted on {HOST}, then your access token in HF_TOKEN.")
    if status in (401, 404):
        raise SourceError(
            f"{HOST} has no public repository {repo}; a private one needs your access token in HF_TOKEN."
        )
    if status != 200:
        raise SourceError(f"{HOST} refuses {repo}: {status_text(status)}.")
