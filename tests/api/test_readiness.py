"""Requests that are turned away before they begin: the model loads, or too many wait."""

from __future__ import annotations

import socket

from tests.api.conftest import Server, run_server
from tests.api.serve import MODEL_ID, SLOTS
from tests.api.test_connections import LONG, ROUTES, body, request


def test_while_the_model_loads() -> None:
    with run_server("slow") as server:
        server.until(lambda report: "worker_pid" in report)
        for path in ("/", "/health", "/v1/health"):
            answer = server.http.get(path)
            assert (answer.status_code, answer.json()["status"]) == (503, "loading")
            assert int(answer.headers["retry-after"]) >= 1
        head = server.http.head("/api/hello")
        assert (head.status_code, head.content) == (503, b"")
        assert int(head.headers["retry-after"]) >= 1
        for route in ROUTES:
            for stream in (False, True):
                answer = server.http.post(route, json=body(route, "x", stream=stream))
                assert (answer.status_code, answer.json()["error"]["code"]) == (503, "not_ready")
                assert int(answer.headers["retry-after"]) >= 1
            assert server.http.post(route, json=body(route, "x", n=2)).status_code == 400
        card = server.http.get("/v1/models").json()["data"][0]
        assert card["id"] == MODEL_ID
        assert "gb" not in card


def test_too_many_wait(server: Server) -> None:
    waiting = 32
    clients = []
    for _ in range(SLOTS + waiting):
        client = socket.create_connection(("127.0.0.1", server.port))
        client.sendall(request(ROUTES[1], body(ROUTES[1], LONG, stream=True)))
        clients.append(client)
    server.until(lambda report: report["waiting"] == waiting)
    for route in ROUTES:
        for stream in (False, True):
            answer = server.http.post(route, json=body(route, "x", stream=stream))
            assert answer.status_code == 429
            assert int(answer.headers["retry-after"]) >= 1
            assert answer.json()["error"]["type"] == "rate_limit_error"
            assert answer.json()["error"]["code"] == "rate_limit_exceeded"
    for client in clients:
        client.close()
