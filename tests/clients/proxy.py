"""A proxy between a client and the server: it keeps everything that went through, and can refuse requests."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from mashbox.errors import RequestError
from mashbox.http.errors import error_response
from mashbox.http.record import RequestRecord
from tests.wire import anthropic_events, chat_events, responses_events

HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "date", "server"}
SERVER_TIMEOUT_S = 60.0
CHAT = "/v1/chat/completions"
CHECKS: Mapping[str, Callable[[bytes], object]] = {
    "/v1/messages": anthropic_events.check_stream,
    "/v1/responses": responses_events.check_stream,
}


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one request: of its prompt, those of them that were cached, and the new ones."""

    prompt: int
    cached: int
    output: int


@dataclass(slots=True)
class Exchange:
    """One request and what came back; `status` is 0 and `received` grows while it is under way."""

    method: str
    path: str
    sent: bytes
    status: int = 0
    received: bytearray = field(default_factory=bytearray)
    begun: float = field(default_factory=time.monotonic)
    whole: bool = False
    """All of the answer came and went on to the client."""

    @property
    def request(self) -> Any:
        """The request's JSON."""
        return json.loads(self.sent)

    @property
    def route(self) -> str:
        """The path without its query."""
        return self.path.partition("?")[0]

    @property
    def answer(self) -> Any:
        """The JSON of an answer that was not streamed."""
        return json.loads(self.received)

    def data(self) -> list[Any]:
        """The JSON of every `data:` line of a stream, `[DONE]` left out."""
        lines = self.received.decode().split("\n")
        texts = [line.removeprefix("data:").strip() for line in lines if line.startswith("data:")]
        return [json.loads(text) for text in texts if text != "[DONE]"]

    def check(self) -> None:
        """Check the order of a stream's events."""
        if not self.whole or not self.received.startswith((b"event:", b"data:", b":")):
            return
        if self.route == CHAT:
            asked = self.request.get("stream_options") or {}
            chat_events.read_chat_stream(
                self.received.decode(), include_usage=bool(asked.get("include_usage"))
            )
        else:
            CHECKS[self.route](bytes(self.received))

    @property
    def text(self) -> str:
        """The text that a stream told, thinking left out."""
        return "".join(_text_delta(data) for data in self.data())

    @property
    def usage(self) -> Usage:
        """What the end of a stream tells."""
        for data in reversed(self.data()):
            if usage := data.get("usage") or data.get("response", {}).get("usage"):
                return _read_usage(usage)
        raise AssertionError(f"no usage in {bytes(self.received)!r}")


def _text_delta(data: Any) -> str:
    """What an event or a chunk adds to the answer's text, in any of the three protocols."""
    match data:
        case {"type": "content_block_delta", "delta": {"type": "text_delta", "text": str(text)}}:
            return text
        case {"type": "response.output_text.delta", "delta": str(text)}:
            return text
        case {"choices": [{"delta": {"content": str(text)}}]}:
            return text
    return ""


def _read_usage(usage: Mapping[str, Any]) -> Usage:
    if "cache_read_input_tokens" in usage:
        cached = usage["cache_read_input_tokens"]
        return Usage(usage["input_tokens"] + cached, cached, usage["output_tokens"])
    given, made = ("input", "output") if "input_tokens" in usage else ("prompt", "completion")
    cached = usage[f"{given}_tokens_details"]["cached_tokens"]
    return Usage(usage[f"{given}_tokens"], cached, usage[f"{made}_tokens"])


Judge = Callable[[Exchange, int], RequestError | None]
"""Says which of the server's own errors a POST gets in the server's place; it is told how many POSTs to
this route there were before."""


def let_pass(exchange: Exchange, before: int) -> RequestError | None:
    """The judge that refuses nothing."""
    return None


class Proxy:
    """See the module. One thread per connection; `exchanges` are in the order of their arrival."""

    def __init__(self, target_port: int, judge: Judge = let_pass) -> None:
        self.target_port = target_port
        self.judge = judge
        self.exchanges: list[Exchange] = []
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler_for(self))
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    @contextmanager
    def running(self) -> Iterator[Proxy]:
        """Serve in a thread of its own."""
        thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            thread.join()
            self._server.server_close()

    def posts(self, route: str) -> list[Exchange]:
        """The POSTs to one route so far."""
        return [seen for seen in self.exchanges if seen.method == "POST" and seen.route == route]

    def admit(self, exchange: Exchange) -> RequestError | None:
        """Keep an exchange, and say whether it is refused."""
        with self._lock:
            before = len(self.posts(exchange.route))
            self.exchanges.append(exchange)
        return self.judge(exchange, before) if exchange.method == "POST" else None


def _handler_for(proxy: Proxy) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_request(self, code: object = "-", size: object = "-") -> None:
            """Say nothing."""

        def handle_one_request(self) -> None:
            try:
                super().handle_one_request()
            except ConnectionError:  # the client went away
                self.close_connection = True

        def do_POST(self) -> None:
            sent = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            exchange = Exchange(self.command, self.path, sent)
            error = proxy.admit(exchange)
            if error is None:
                self._forward(exchange)
            else:
                self._refuse(exchange, error)

        def do_GET(self) -> None:
            self.do_POST()

        def do_HEAD(self) -> None:
            self.do_POST()

        def _refuse(self, exchange: Exchange, error: RequestError) -> None:
            answer = error_response(error, RequestRecord(exchange.method, exchange.route))
            exchange.status = answer.status_code
            exchange.received += answer.body
            self.send_response(answer.status_code)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(answer.body)

        def _forward(self, exchange: Exchange) -> None:
            server = http.client.HTTPConnection("127.0.0.1", proxy.target_port, timeout=SERVER_TIMEOUT_S)
            try:
                headers = {k: v for k, v in self.headers.items() if k.lower() != "transfer-encoding"}
                server.request(self.command, self.path, exchange.sent, headers)
                self._relay(exchange, server.getresponse())
            finally:
                server.close()

        def _relay(self, exchange: Exchange, answer: http.client.HTTPResponse) -> None:
            """Pass the answer on piece by piece, as it comes."""
            exchange.status = answer.status
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in HOP_BY_HOP:
                    self.send_header(name, value)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            while self.command != "HEAD" and (piece := answer.read1()):
                exchange.received += piece
                self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                self.wfile.flush()
            if self.command != "HEAD":
                self.wfile.write(b"0\r\n\r\n")
            exchange.whole = True

    return Handler
