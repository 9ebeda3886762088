"""The model server's ASGI application: every route and middleware, in order."""

from __future__ import annotations

from collections.abc import Callable

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.routing import Route
from starlette.types import Lifespan

from mashbox.api.anthropic_messages import Messages
from mashbox.api.health import Health, Identity
from mashbox.api.metrics import Metrics
from mashbox.api.models import Models
from mashbox.api.openai_chat import ChatCompletions
from mashbox.api.openai_completions import Completions
from mashbox.api.openai_responses import Responses, refuse_upgrade
from mashbox.api.openapi.document import OpenApi
from mashbox.api.request_counts import RequestCounts
from mashbox.api.settings import ServeConfig
from mashbox.chat.service import ChatService
from mashbox.engine.client import EngineClient
from mashbox.http.allowed import Allowed
from mashbox.http.auth import AuthMiddleware
from mashbox.http.body_budget import BodyBudget, BodyBudgetMiddleware
from mashbox.http.boundary import BoundaryMiddleware
from mashbox.http.errors import on_http_exception
from mashbox.http.guard import GuardMiddleware
from mashbox.http.head import HeadMiddleware
from mashbox.http.keys import Keys
from mashbox.http.record import RequestRecord
from mashbox.http.request_log import RequestLog
from mashbox.http.sse import DEFAULT_LIMITS, StreamLimits

POLLS = ("/", "/health", "/v1/health", "/metrics")
"""Routes that machines ask every few seconds."""


def create_app(
    *,
    config: ServeConfig,
    engine: EngineClient,
    chat: ChatService,
    counts: RequestCounts,
    identity: Callable[[], Identity],
    keys: Keys,
    allowed: Allowed,
    lifespan: Lifespan[Starlette] | None = None,
    stream_limits: StreamLimits = DEFAULT_LIMITS,
) -> Starlette:
    """Wire the routes to what they need. `lifespan` starts and stops the engine, `counts` observes it."""
    health = Health(engine, config, identity)
    models = Models(engine, config)
    messages = Messages(chat, config, stream_limits)
    routes = [
        Route("/v1/health", health.handle),
        Route("/health", health.handle),
        Route("/", health.handle),
        Route("/metrics", Metrics(engine, config, counts).handle),
        Route("/openapi.json", OpenApi(config).handle),
        Route("/v1/models", models.handle_list),
        Route("/v1/models/{model:path}", models.handle_one),
        Route("/v1/chat/completions", ChatCompletions(chat, config, stream_limits).handle, methods=["POST"]),
        Route("/v1/completions", Completions(chat, config, stream_limits).handle, methods=["POST"]),
        Route("/v1/messages", messages.handle, methods=["POST"]),
        Route("/v1/messages/count_tokens", messages.handle_count, methods=["POST"]),
        Route("/v1/responses", Responses(chat, config, stream_limits).handle, methods=["POST"]),
        Route("/v1/responses", refuse_upgrade, methods=["GET"]),
    ]
    log = RequestLog(routes, polls=POLLS)

    def on_end(record: RequestRecord) -> None:
        counts.answered(record)
        log.ended(record)

    app = Starlette(
        routes=routes,
        middleware=[
            Middleware(BoundaryMiddleware, on_end=on_end),
            Middleware(GuardMiddleware, allowed=allowed),
            Middleware(AuthMiddleware, keys=keys),
            Middleware(BodyBudgetMiddleware, budget=BodyBudget()),
            Middleware(HeadMiddleware, ready=health.ready, retry_after=lambda: engine.retry_after),
        ],
        exception_handlers={
            HTTPException: on_http_exception,
        },
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False
    return app
