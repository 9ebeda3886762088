"""GET /v1/health, /health and /: is the server ready, and what is it doing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from mashbox.api.settings import ServeConfig
from mashbox.engine.client import LOADING_RETRY_S, EngineClient
from mashbox.http.json import json_response


@dataclass(frozen=True, slots=True)
class Identity:
    """What exactly this server runs, as ids to compare; None where it is not known."""

    deployment_id: str | None = None
    component_set_sha: str | None = None
    cache_namespace: str | None = None


class HealthReport(msgspec.Struct):
    """The health object. Sizes in bytes."""

    status: str
    live_rows: int
    waiting: int
    cache_bytes: int
    host_cache_bytes: int
    snapshot_bytes: int
    host_cache_cap_bytes: int
    host_cache_evictions: int
    cache_namespace: str | None
    deployment_id: str | None
    component_set_sha: str | None
    certification: str
    compiles_after_ready: int | None
    routed_experts: dict[str, Any] | None
    worker_restarts: int
    worker_pid: int | msgspec.UnsetType = msgspec.UNSET


class Health:
    """The route's handler."""

    def __init__(self, engine: EngineClient, config: ServeConfig, identity: Callable[[], Identity]) -> None:
        self._engine = engine
        self._config = config
        self._identity = identity

    def ready(self) -> bool:
        """Whether requests are taken now."""
        return self._engine.status.state == "ready"

    async def handle(self, request: Request) -> Response:
        """200 when ready, else 503 with Retry-After; the same object either way."""
        if self.ready():
            return json_response(self.report())
        headers = {"Retry-After": str(LOADING_RETRY_S)}
        return json_response(self.report(), status=503, headers=headers)

    def report(self) -> HealthReport:
        """The server's state now."""
        status = self._engine.status
        identity = self._identity()
        return HealthReport(
            status="ok" if self.ready() else "loading",
            live_rows=status.running,
            waiting=status.waiting,
            cache_bytes=0,
            host_cache_bytes=0,
            snapshot_bytes=0,
            host_cache_cap_bytes=self._config.cache_ram_mib * 2**20,
            host_cache_evictions=0,
            cache_namespace=identity.cache_namespace,
            deployment_id=identity.deployment_id,
            component_set_sha=identity.component_set_sha,
            certification="none",
            compiles_after_ready=None,
            routed_experts=None,
            worker_restarts=status.worker_restarts,
            worker_pid=msgspec.UNSET if status.worker_pid is None else status.worker_pid,
        )
