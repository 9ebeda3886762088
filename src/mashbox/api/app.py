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
from mashbox.api.request_counts import RequestCounts
from mashbox.api.settings import ServeConfig
from mashbox.chat.service import ChatService
from mashbox.engine.client import LOADING_RETRY_S, EngineClient
from mashbox.errors import RequestError
from mashbox.http.errors import on_bug, on_http_exception, on_request_error
from mashbox.http.head import HeadMiddleware
from mashbox.http.sse import DEFAULT_LIMITS, StreamLimits


def create_app(
    *,
    config: ServeConfig,
    engine: EngineClient,
    chat: ChatService,
    counts: RequestCounts,
    identity: Callable[[], Identity],
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
        Route("/v1/models", models.handle_list),
        Route("/v1/models/{model:path}", models.handle_one),
        Route("/v1/chat/completions", ChatCompletions(chat, config, stream_limits).handle, methods=["POST"]),
        Route("/v1/completions", Completions(chat, config, stream_limits).handle, methods=["POST"]),
        Route("/v1/messages", messages.handle, methods=["POST"]),
        Route("/v1/messages/count_tokens", messages.handle_count, methods=["POST"]),
        Route("/v1/responses", Responses(chat, config, stream_limits).handle, methods=["POST"]),
        Route("/v1/responses", refuse_upgrade, methods=["GET"]),
    ]
    app = Starlette(
        routes=routes,
        middleware=[Middleware(HeadMiddleware, ready=health.ready, retry_after=LOADING_RETRY_S)],
        exception_handlers={
            RequestError: counts.counting(on_request_error),
            HTTPException: counts.counting(on_http_exception),
            Exception: counts.counting(on_bug),
        },
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False
    return app
