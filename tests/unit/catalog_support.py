"""Test helpers for the catalog: a tiny GGUF writer and a file server on loopback with faults."""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from mashbox.catalog.gguf import Value

F32, Q8_0 = 0, 8
Tensors = Sequence[tuple[str, tuple[int, ...], int]]


def _text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def _value(value: object) -> bytes:
    """A value with its type number in front."""
    match value:
        case bool():
            return struct.pack("<I?", 7, value)
        case int():
            return struct.pack("<Iq", 11, value)
        case float():
            return struct.pack("<Id", 12, value)
        case str():
            return struct.pack("<I", 8) + _text(value)
        case list() | tuple():
            items = [_value(item) for item in value]
            kind = items[0][:4] if items else struct.pack("<I", 4)
            return (
                struct.pack("<I", 9) + kind + struct.pack("<Q", len(items)) + b"".join(i[4:] for i in items)
            )
    raise TypeError(value)


def gguf_header(metadata: Mapping[str, object], tensors: Tensors = (), version: int = 3) -> tuple[bytes, int]:
    """The header up to where the data starts, and the bytes of data that belong behind it."""
    described, offset = b"", 0
    for name, dims, kind in tensors:
        elements = 1
        for dim in dims:
            elements *= dim
        described += _text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)
        size = elements * 4 if kind == F32 else elements // 32 * 34
        offset += -(-size // 32) * 32
        last = offset - (-(-size // 32) * 32) + size
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(metadata))
    head += b"".join(_text(key) + _value(value) for key, value in metadata.items()) + described
    return head + bytes(-len(head) % 32), last if tensors else 0


def build_gguf(metadata: Mapping[str, object], tensors: Tensors = (), version: int = 3) -> bytes:
    """A whole GGUF file, its weights all zero."""
    head, data = gguf_header(metadata, tensors, version)
    return head + bytes(data)


def llama_metadata(**changes: Value) -> dict[str, Value]:
    """A small, plain transformer: 4 layers, 2 KV heads of 64, context 4096."""
    settings: dict[str, Value] = {
        "context_length": 4096,
        "embedding_length": 512,
        "block_count": 4,
        "feed_forward_length": 1024,
        "attention.head_count": 8,
        "attention.head_count_kv": 2,
        "vocab_size": 1000,
        **{name.replace("__", "."): value for name, value in changes.items()},
    }
    return {"general.architecture": "llama", **{f"llama.{key}": value for key, value in settings.items()}}


@dataclass
class Resource:
    """One address: what it sends and how it misbehaves."""

    content: bytes = b""
    status: int = 200
    ranges: bool = True
    content_type: str = "application/octet-stream"
    etag: str | None = None
    cuts: list[int] = field(default_factory=list)
    """For each coming request, after how many body bytes the connection is cut."""
    redirect: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    delay: float = 0.0
    """Seconds before the answer."""


@dataclass(frozen=True)
class Request:
    """What a client asked for."""

    path: str
    range: str | None
    authorization: str | None


class FileServer:
    """`resources` by path; `requests` in order of arrival."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.resources: dict[str, Resource] = {}
        self.requests: list[Request] = []


@contextmanager
def file_server() -> Iterator[FileServer]:
    """A server on a free port of 127.0.0.1."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None: ...

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            wanted = self.headers.get("Range")
            server.requests.append(Request(path, wanted, self.headers.get("Authorization")))
            resource = server.resources.get(path, Resource(b"not here", status=404))
            time.sleep(resource.delay)
            body, status, extra = resource.content, resource.status, {}
            if resource.redirect:
                body, status, extra = b"", 302, {"Location": resource.redirect}
            elif wanted and resource.ranges and status == 200:
                start = int(wanted.removeprefix("bytes=").rstrip("-"))
                guard = self.headers.get("If-Range")
                if guard is None or guard == resource.etag:
                    status, extra = 206, {"Content-Range": f"bytes {start}-{len(body) - 1}/{len(body)}"}
                    body = body[start:]
                    if not body:
                        status, extra = 416, {}
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Content-Type", resource.content_type)
            for name, value in {
                **resource.headers,
                **extra,
                **({"ETag": resource.etag} if resource.etag else {}),
            }.items():
                self.send_header(name, value)
            self.end_headers()
            cut = resource.cuts.pop(0) if resource.cuts else None
            self.wfile.write(body if cut is None else body[:cut])
            if cut is not None:
                self.wfile.flush()
                self.close_connection = True

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_: object) -> None: ...  # a client that hangs up is part of the tests

    httpd = Server(("127.0.0.1", 0), Handler)
    server = FileServer(f"http://127.0.0.1:{httpd.server_address[1]}")
    thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        httpd.shutdown()
        thread.join()
        httpd.server_close()


class Recorder:
    """A reporter that remembers the sentences and the bytes."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.begun: list[tuple[str, int | None, int]] = []
        self.bytes = 0

    def note(self, line: str) -> None:
        self.notes.append(line)

    def begin(self, name: str, total: int | None, done: int) -> None:
        self.begun.append((name, total, done))

    def advance(self, count: int) -> None:
        self.bytes += count

    def end(self) -> None: ...
