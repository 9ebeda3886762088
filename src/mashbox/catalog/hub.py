"""GGUF repositories on Hugging Face: find the files, here or there, and fetch them.

`huggingface_hub` brings the address, token, proxies and offline switch; the bytes go through
`download.py`, because the library starts a cut download over and repeats a refused one for 23 s.
"""

from __future__ import annotations

from pathlib import Path

import httpx2
from huggingface_hub import HfApi, ModelInfo, constants, get_session, get_token, hf_hub_url
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
)
from huggingface_hub.file_download import repo_folder_name

from mashbox.catalog.download import RemoteFile, download, exclusive
from mashbox.catalog.entries import HubSource
from mashbox.catalog.progress import Reporter
from mashbox.catalog.selection import PREFERRED_QUANT, SelectionError, choose
from mashbox.catalog.transport import reason, status_text
from mashbox.errors import ConfigError, SourceError

HOST = "Hugging Face"

_PROBE_SECONDS = 10.0


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
    folder = Path(constants.HF_HUB_CACHE) / repo_folder_name(repo_id=repo, repo_type="model")
    try:
        return folder / "snapshots" / (folder / "refs" / "main").read_text().strip()
    except OSError:
        return None


def fetch_from_hub(source: HubSource, root: Path, reporter: Reporter) -> tuple[Path, ...]:
    """Download the model's files below `root`. Raises SourceError, ConfigError, ModelFileError."""
    info = _repository(source.repo)
    sizes = {file.rfilename: file for file in info.siblings or ()}
    names = choose(sizes, source.wanted, f"{source.repo} on {HOST}")
    client, token = get_session(), get_token()
    targets = []
    for name in names:
        target = repo_directory(root, source.repo) / name
        lfs = sizes[name].lfs
        file = RemoteFile(
            url=hf_hub_url(source.repo, name, revision=info.sha),
            name=name,
            host=HOST,
            size=sizes[name].size,
            sha256=source.sha256 or (lfs.sha256 if lfs else None),
            headers={"Authorization": f"Bearer {token}"} if token else {},
        )
        with exclusive(target, reporter):
            if not target.exists():
                download(file, target, client, reporter)
        targets.append(target)
    return tuple(targets)


def _repository(repo: str) -> ModelInfo:
    """The listing of a repository with sizes and checksums; one request, never repeated."""
    try:
        return HfApi().model_info(repo, files_metadata=True, timeout=_PROBE_SECONDS)
    except OfflineModeIsEnabled as error:
        raise SourceError(f"{HOST} is switched off by HF_HUB_OFFLINE.") from error
    except GatedRepoError as error:
        raise SourceError(
            f"{repo} needs its terms accepted on {HOST}, and then your access token in HF_TOKEN."
        ) from error
    except RepositoryNotFoundError as error:
        raise SourceError(
            f"{HOST} has no public repository {repo}; a private one needs your access token in HF_TOKEN."
        ) from error
    except HfHubHTTPError as error:
        raise SourceError(f"{HOST} refuses {repo}: {status_text(error.response.status_code)}.") from error
    except HFValidationError as error:
        raise ConfigError(f"{repo} is not a repository name; it should look like owner/repo.") from error
    except httpx2.RequestError as error:
        raise SourceError(f"{HOST} cannot be reached ({reason(error)}).") from error
