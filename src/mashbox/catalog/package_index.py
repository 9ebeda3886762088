"""Find a wheel on a Python package index: the simple API as JSON (PEP 691) or as the older HTML."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html.parser import HTMLParser
from urllib.parse import unquote, urldefrag, urljoin, urlsplit, urlunsplit

import httpx2
import msgspec

from mashbox.catalog.download import RemoteFile
from mashbox.catalog.transport import reason, status_text
from mashbox.errors import SourceError

_ACCEPT = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"


class IndexFile(msgspec.Struct, frozen=True):
    """One file of a project, as the index lists it; the address may be relative to the page."""

    filename: str
    url: str
    hashes: dict[str, str] = {}
    size: int | None = None


class _ProjectPage(msgspec.Struct, frozen=True):
    files: list[IndexFile]


def find_wheel(client: httpx2.Client, indexes: Sequence[str], project: str, version: str) -> RemoteFile:
    """The wheel of `project` in exactly this version, from the first index that has it.

    Raises SourceError, with the last index's reason, when none has.
    """
    problem = SourceError("pip is configured without a package index that can be reached over HTTP.")
    for index in indexes:
        try:
            return _find_on(client, index, project, version)
        except SourceError as error:
            problem = error
    raise problem


def _find_on(client: httpx2.Client, index: str, project: str, version: str) -> RemoteFile:
    name = re.sub(r"[-_.]+", "-", project).lower()
    page, host = f"{index}/{name}/", urlsplit(index).hostname or index
    try:
        response = client.get(page, headers={"Accept": _ACCEPT})
        files = _files(response) if response.status_code == 200 else []
    except httpx2.RequestError as error:
        raise SourceError(f"{host} does not answer ({reason(error)}).") from error
    except msgspec.DecodeError as error:
        raise SourceError(f"{host} answered with something that is not a package index.") from error
    if response.status_code != 200:
        raise SourceError(f"{host} refuses {project}: {status_text(response.status_code)}.")
    for file in files:
        if _is_wheel(file.filename, name, version):
            url = _with_login(index, urljoin(str(response.url), file.url))
            return RemoteFile(url, file.filename, host, file.size, file.hashes.get("sha256"))
    raise SourceError(f"{host} has no wheel of {project} {version}.")


def _is_wheel(filename: str, name: str, version: str) -> bool:
    parts = filename.split("-")
    normal = re.sub(r"[-_.]+", "-", parts[0]).lower()
    return filename.endswith(".whl") and "/" not in filename and normal == name and parts[1] == version


def _with_login(index: str, url: str) -> str:
    """Files on the index's own host need the same user and password as the index."""
    login, at, _ = urlsplit(index).netloc.rpartition("@")
    parts = urlsplit(url)
    if not at or "@" in parts.netloc or parts.hostname != urlsplit(index).hostname:
        return url
    return urlunsplit(parts._replace(netloc=f"{login}@{parts.netloc}"))


def _files(response: httpx2.Response) -> list[IndexFile]:
    if "json" in response.headers.get("Content-Type", ""):
        return msgspec.json.decode(response.content, type=_ProjectPage).files
    links = _Links()
    links.feed(response.text)
    return links.files


class _Links(HTMLParser):
    """Collects the files of an HTML index page; the checksum is the link's fragment."""

    def __init__(self) -> None:
        super().__init__()
        self.files: list[IndexFile] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        href = dict(attrs).get("href")
        if tag != "a" or not href:
            return
        url, fragment = urldefrag(href)
        kind, _, digest = fragment.partition("=")
        hashes = {kind: digest} if digest else {}
        self.files.append(IndexFile(unquote(urlsplit(url).path.rpartition("/")[2]), url, hashes))
