from __future__ import annotations

import errno
import hashlib
import multiprocessing
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from catalog_support import FileServer, Recorder, Resource, file_server

from mashbox.catalog.download import RemoteFile, download, exclusive
from mashbox.catalog.partial import writing
from mashbox.catalog.progress import SilentReporter
from mashbox.errors import ConfigError, ModelFileError, SourceError

CONTENT = bytes(range(256)) * 4000
SHA256 = hashlib.sha256(CONTENT).hexdigest()
NO_PAUSES = (0.0, 0.0, 0.0)


@pytest.fixture
def server() -> Iterator[FileServer]:
    with file_server() as running:
        running.resources["/m.gguf"] = Resource(CONTENT)
        yield running


@pytest.fixture
def client() -> Iterator[httpx2.Client]:
    with httpx2.Client() as opened:
        yield opened


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "m.gguf"


def remote(server: FileServer, sha256: str | None = SHA256, size: int | None = len(CONTENT)) -> RemoteFile:
    return RemoteFile(f"{server.url}/m.gguf", "m.gguf", "the test server", size, sha256)


def leave_part(
    server: FileServer, target: Path, client: httpx2.Client, file: RemoteFile, bytes_kept: int
) -> None:
    """A first run that is cut for good after `bytes_kept` bytes."""
    server.resources["/m.gguf"].cuts = [bytes_kept]
    with pytest.raises(SourceError):
        download(file, target, client, SilentReporter(), pauses=())
    assert target.with_name("m.gguf.part").stat().st_size == bytes_kept
    server.requests.clear()


def only_the_target_is_left(target: Path) -> bool:
    return [path.name for path in target.parent.iterdir()] == [target.name]


def test_whole_file(server: FileServer, client: httpx2.Client, target: Path) -> None:
    recorder = Recorder()
    download(remote(server), target, client, recorder)
    assert target.read_bytes() == CONTENT
    assert only_the_target_is_left(target)
    assert recorder.begun == [("m.gguf", len(CONTENT), 0)]
    assert recorder.bytes == len(CONTENT)


def test_without_size_and_checksum(server: FileServer, client: httpx2.Client, target: Path) -> None:
    download(remote(server, None, None), target, client, SilentReporter())
    assert target.read_bytes() == CONTENT


def test_goes_on_after_a_cut_connection(server: FileServer, client: httpx2.Client, target: Path) -> None:
    server.resources["/m.gguf"].cuts = [300_000, 200_000]
    download(remote(server), target, client, SilentReporter(), NO_PAUSES)
    assert target.read_bytes() == CONTENT
    assert [request.range for request in server.requests] == [None, "bytes=300000-", "bytes=500000-"]


def test_goes_on_after_an_earlier_run(server: FileServer, client: httpx2.Client, target: Path) -> None:
    leave_part(server, target, client, remote(server), 400_000)
    recorder = Recorder()
    download(remote(server), target, client, recorder)
    assert target.read_bytes() == CONTENT
    assert server.requests[0].range == "bytes=400000-"
    assert recorder.begun == [("m.gguf", len(CONTENT), 400_000)]


def test_the_same_bytes_from_another_address(server: FileServer, client: httpx2.Client, target: Path) -> None:
    leave_part(server, target, client, remote(server), 400_000)
    server.resources["/mirror"] = Resource(CONTENT)
    mirror = RemoteFile(f"{server.url}/mirror", "m.gguf", "the mirror", len(CONTENT), SHA256)
    download(mirror, target, client, SilentReporter())
    assert target.read_bytes() == CONTENT
    assert server.requests[0].range == "bytes=400000-"


def test_starts_over_when_the_server_ignores_ranges(
    server: FileServer, client: httpx2.Client, target: Path
) -> None:
    leave_part(server, target, client, remote(server), 400_000)
    server.resources["/m.gguf"].ranges = False
    download(remote(server), target, client, SilentReporter())
    assert target.read_bytes() == CONTENT
    assert len(server.requests) == 1


def test_starts_over_when_the_part_is_of_another_file(
    server: FileServer, client: httpx2.Client, target: Path
) -> None:
    other = hashlib.sha256(b"other").hexdigest()
    leave_part(server, target, client, remote(server, other), 400_000)
    download(remote(server), target, client, SilentReporter())
    assert target.read_bytes() == CONTENT
    assert server.requests[0].range is None


def test_starts_over_when_the_part_is_damaged(
    server: FileServer, client: httpx2.Client, target: Path
) -> None:
    leave_part(server, target, client, remote(server), 400_000)
    target.with_name("m.gguf.part").write_bytes(b"x" * 400_000)
    download(remote(server), target, client, SilentReporter())
    assert target.read_bytes() == CONTENT
    assert [request.range for request in server.requests] == ["bytes=400000-", None]


@pytest.mark.parametrize("size", [None, len(CONTENT)])
def test_starts_over_when_the_part_is_too_long(
    server: FileServer, client: httpx2.Client, target: Path, size: int | None
) -> None:
    leave_part(server, target, client, remote(server, size=size), 400_000)
    target.with_name("m.gguf.part").write_bytes(CONTENT + b"more")
    download(remote(server, size=size), target, client, SilentReporter())
    assert target.read_bytes() == CONTENT


def test_a_part_without_its_note_is_not_trusted(
    server: FileServer, client: httpx2.Client, target: Path
) -> None:
    target.with_name("m.gguf.part").write_bytes(b"x" * 1000)
    download(remote(server, None, None), target, client, SilentReporter())
    assert target.read_bytes() == CONTENT


@pytest.mark.parametrize("changed", [False, True])
def test_without_a_checksum_the_etag_decides(
    server: FileServer, client: httpx2.Client, target: Path, changed: bool
) -> None:
    resource = server.resources["/m.gguf"]
    resource.etag = '"one"'
    file = remote(server, None, None)
    leave_part(server, target, client, file, 400_000)
    if changed:
        resource.content, resource.etag = CONTENT[::-1], '"two"'
    download(file, target, client, SilentReporter())
    assert target.read_bytes() == resource.content


def test_a_finished_part_needs_no_request(server: FileServer, client: httpx2.Client, target: Path) -> None:
    leave_part(server, target, client, remote(server), 400_000)
    target.with_name("m.gguf.part").write_bytes(CONTENT)
    download(remote(server), target, client, SilentReporter())
    assert target.read_bytes() == CONTENT
    assert server.requests == []


def test_wrong_checksum(server: FileServer, client: httpx2.Client, target: Path) -> None:
    with pytest.raises(ModelFileError, match=r"m\.gguf from the test server has the wrong checksum"):
        download(remote(server, "0" * 64), target, client, SilentReporter())
    assert list(target.parent.iterdir()) == []
    assert len(server.requests) == 1


def test_gives_up_when_every_connection_is_cut_at_once(
    server: FileServer, client: httpx2.Client, target: Path
) -> None:
    server.resources["/m.gguf"].cuts = [1000] + [0] * 20
    with pytest.raises(SourceError, match=r"the first 1\.0 kB are kept"):
        download(remote(server), target, client, SilentReporter(), NO_PAUSES)
    assert len(server.requests) == 1 + len(NO_PAUSES)


def test_gives_up_when_the_same_half_comes_again_and_again(
    server: FileServer, client: httpx2.Client, target: Path
) -> None:
    resource = server.resources["/m.gguf"]
    resource.ranges, resource.cuts = False, [500_000] * 20
    with pytest.raises(SourceError):
        download(remote(server), target, client, SilentReporter(), NO_PAUSES)
    assert len(server.requests) == 1 + len(NO_PAUSES)


@pytest.mark.parametrize(
    ("status", "words"), [(403, "access is not allowed"), (404, "it is not there"), (503, "503")]
)
def test_a_refusal_is_final(
    server: FileServer, client: httpx2.Client, target: Path, status: int, words: str
) -> None:
    server.resources["/m.gguf"].status = status
    with pytest.raises(SourceError, match=words):
        download(remote(server), target, client, SilentReporter())
    assert len(server.requests) == 1


def test_a_refused_connection_is_not_tried_again(client: httpx2.Client, target: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound but not listening: refused
        file = RemoteFile(f"http://127.0.0.1:{taken.getsockname()[1]}/m", "m.gguf", "nobody")
        before = time.monotonic()
        with pytest.raises(SourceError) as caught:
            download(file, target, client, SilentReporter())
    assert str(caught.value) == "nobody does not send m.gguf (Connection refused)."
    assert time.monotonic() - before < 1


def test_a_redirect_to_another_host_does_not_get_the_token(
    server: FileServer, client: httpx2.Client, target: Path
) -> None:
    with file_server() as elsewhere:
        elsewhere.resources["/blob"] = Resource(CONTENT)
        server.resources["/m.gguf"] = Resource(redirect=f"{elsewhere.url}/blob")
        file = RemoteFile(f"{server.url}/m.gguf", "m", "hub", headers={"Authorization": "Bearer secret"})
        download(file, target, client, SilentReporter())
        assert server.requests[0].authorization == "Bearer secret"
        assert elsewhere.requests[0].authorization is None
    assert target.read_bytes() == CONTENT


def test_too_little_space_is_told_before_the_download(
    server: FileServer, client: httpx2.Client, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = type("Usage", (), {"free": 1000})
    monkeypatch.setattr("mashbox.catalog.download.shutil.disk_usage", lambda _: usage)
    with pytest.raises(ConfigError, match=r"too full for m\.gguf: 1\.0 MB needed, 1\.0 kB free"):
        download(remote(server), target, client, SilentReporter())


def test_a_disk_that_fills_up_is_told(target: Path) -> None:
    with pytest.raises(ConfigError, match=r"The disk is full: m\.gguf does not fit"), writing(target):
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_directory_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(ConfigError, match="cannot be written"),
        exclusive(tmp_path / "file/m", SilentReporter()),
    ):
        pass


def _fetch_in_process(url: str, target: Path) -> None:
    file = RemoteFile(url, "m.gguf", "the test server", len(CONTENT), SHA256)
    with exclusive(target, SilentReporter()), httpx2.Client() as client:
        if not target.exists():
            download(file, target, client, SilentReporter())


def test_two_processes_fetch_it_once(server: FileServer, target: Path) -> None:
    server.resources["/m.gguf"].delay = 0.5  # long enough for both to be under way
    context = multiprocessing.get_context("spawn")
    workers = [
        context.Process(target=_fetch_in_process, args=(f"{server.url}/m.gguf", target)) for _ in range(2)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(30)
    assert [worker.exitcode for worker in workers] == [0, 0]
    assert target.read_bytes() == CONTENT
    assert len(server.requests) == 1


def test_waiting_for_another_process_is_told(target: Path) -> None:
    recorder = Recorder()
    context = multiprocessing.get_context("spawn")
    held, release = context.Event(), context.Event()
    holder = context.Process(target=_hold, args=(target, held, release))
    holder.start()
    assert held.wait(30)

    class Releasing(Recorder):
        def note(self, line: str) -> None:
            recorder.note(line)
            release.set()

    with exclusive(target, Releasing()):
        pass
    holder.join(30)
    assert recorder.notes == ["Another process is downloading m.gguf; waiting for it."]


def _hold(target: Path, held: object, release: object) -> None:
    with exclusive(target, SilentReporter()):
        held.set()  # type: ignore[attr-defined]
        release.wait(30)  # type: ignore[attr-defined]
