"""GET /v1/health, /health and /: is the server ready, and what is it doing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from mashbox.api.settings import ServeConfig
from mashbox.engine.certificate import Standing
from mashbox.engine.client import EngineClient
from mashbox.engine.types import ModelFacts
from mashbox.http.json import json_response


@dataclass(frozen=True, slots=True)
class Identity:
    """What exactly this server runs, as ids to compare; None where it is not known."""

    deployment_id: str | None = None
    component_set_sha: str | None = None
    cache_namespace: str | None = None
    certification: Standing = "none"
    """Whether a certificate says that this very build passed with these weights and settings."""


class Kernel(msgspec.Struct):
    """The code that computes routed experts, and the package it came in."""

    id: str
    version: str
    package: str


class RoutedExperts(msgspec.Struct):
    """How a mixture-of-experts model's experts are computed; `sites` counts the places on each path."""

    path: str
    kernel: Kernel | None
    sites: dict[str, int]
    exact_why: str | None


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
    routed_experts: RoutedExperts | None
    worker_restarts: int
    worker_pid: int | msgspec.UnsetType = msgspec.UNSET


MATRICES_PER_EXPERT = 3
"""Gate, up and down: each is one call in every layer with routed experts."""


def routed_experts(facts: ModelFacts | None) -> RoutedExperts | None:
    """None for a dense model, and before the model is loaded."""
    if facts is None or not facts.experts:
        return None
    package, _, version = facts.build.partition(";")[0].rpartition(" ")
    kernel = Kernel("ggml_mul_mat_id", version, package) if package else None
    sites = {"kernel": MATRICES_PER_EXPERT * facts.expert_layers, "exact": 0}
    return RoutedExperts("kernel", kernel, sites, None)


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
        headers = {"Retry-After": str(self._engine.retry_after)}
        return json_response(self.report(), status=503, headers=headers)

    def report(self) -> HealthReport:
        """The server's state now."""
        status = self._engine.status
        cache = status.cache
        identity = self._identity()
        return HealthReport(
            status="ok" if self.ready() else "loading",
            live_rows=status.running,
            waiting=status.waiting,
            cache_bytes=cache.host_bytes + cache.snapshot_bytes,
            host_cache_bytes=cache.host_bytes,
            snapshot_bytes=cache.snapshot_bytes,
            host_cache_cap_bytes=self._config.cache_ram_mib * 2**20,
            host_cache_evictions=cache.evictions,
            cache_namespace=identity.cache_namespace,
            deployment_id=identity.deployment_id,
            component_set_sha=identity.component_set_sha,
            certification=identity.certification,
            compiles_after_ready=0 if status.facts else None,
            routed_experts=routed_experts(status.facts),
            worker_restarts=status.worker_restarts,
            worker_pid=msgspec.UNSET if status.worker_pid is None else status.worker_pid,
        )
