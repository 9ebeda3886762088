"""The log's line for each HTTP request, once it is over."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from typing import Any

from starlette.routing import BaseRoute, Match, Route

from mashbox.http.record import RequestRecord
from mashbox.logs.entry import Entry
from mashbox.logs.escape import label

log = logging.getLogger(__name__)

NO_ROUTE = "-"
READINESS = (200, 503)
"""Statuses of polls that tell what the poll asked for; any other is worth a line."""
_ROUTE_COLUMNS = 25
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:/@+-~\\…")


class RequestLog:
    """Writes the lines. Paths are told as patterns; those of `polls`, and HEAD, at debug level."""

    def __init__(self, routes: Sequence[BaseRoute], polls: Collection[str]) -> None:
        self._routes = [route for route in routes if isinstance(route, Route)]
        self._polls = frozenset(polls)

    def ended(self, record: RequestRecord) -> None:
        """A request is over, whatever became of it."""
        route = self._pattern(record)
        polled = (route in self._polls or record.method == "HEAD") and record.status in READINESS
        level = logging.DEBUG if polled else logging.INFO
        if log.isEnabledFor(level):
            fields = request_fields(record, route)
            log.log(level, Entry("request", request_text(fields), fields))

    def _pattern(self, record: RequestRecord) -> str:
        """Requests that were refused on the way never met their route."""
        scope = {"type": "http", "method": record.method, "path": record.path, "headers": []}
        return next((r.path for r in self._routes if r.matches(scope)[0] is not Match.NONE), NO_ROUTE)


def request_fields(record: RequestRecord, route: str) -> dict[str, Any]:
    """What a JSON line has; what is not known is left out."""
    outcome = record.outcome
    fields = {
        "request_id": record.id,
        "client_request_id": record.client_request_id or None,
        "method": label(record.method),
        "route": route,
        "status": record.status or None,
        "finish": record.finish or None,
        "seconds": round(record.seconds, 3),
        "tenant": label(record.tenant) or None,
        "session": record.session or None,
    }
    if outcome is not None:
        fields |= {
            "answer_id": outcome.id or None,
            "prompt_tokens": outcome.prompt_tokens,
            "cached_tokens": outcome.cached_tokens,
            "completion_tokens": outcome.completion_tokens,
            "pieces": outcome.pieces,
            "queue_s": _rounded(outcome.queue_s, 3),
            "first_token_s": _rounded(outcome.first_token_s, 3),
            "tokens_per_s": _rounded(outcome.tokens_per_s, 1),
        }
    return {name: value for name, value in fields.items() if value is not None}


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)


def request_text(fields: dict[str, Any]) -> str:
    """The same for people: what is compared from line to line stands in columns, names and ids at the end."""
    where = f"{fields['method']} {fields['route']}"
    parts = [
        f"{fields.get('status', '---'):>3} {where:<{_ROUTE_COLUMNS}} {fields.get('finish', ''):<10}",
        f"{fields['seconds']:7.2f} s",
    ]
    if "prompt_tokens" in fields:
        parts.append(_tokens(fields))
        parts += [
            f"{name} {fields[key]:.2f} s"
            for name, key in (("queue", "queue_s"), ("first", "first_token_s"))
            if key in fields
        ]
    parts += [
        f"{name} {_quoted(fields[key])}"
        for name, key in (("tenant", "tenant"), ("session", "session"), ("theirs", "client_request_id"))
        if key in fields
    ]
    parts += [fields[key] for key in ("answer_id", "request_id") if key in fields]
    return "  ".join(parts)


def _tokens(fields: dict[str, Any]) -> str:
    """Prompt, cached, completion and speed; "~" before what is only nearly known."""
    text = f"{fields['prompt_tokens']:>6} in"
    if "cached_tokens" in fields:
        text += f" {fields['cached_tokens']:>6} cached"
    if "completion_tokens" in fields:
        text += f" {fields['completion_tokens']:>5} out"
    elif "pieces" in fields:
        text += f" {'~' + str(fields['pieces']):>5} out"
    return text + (f" {fields['tokens_per_s']:>6.1f}/s" if "tokens_per_s" in fields else "")


def _quoted(name: str) -> str:
    """A name with spaces or signs in it must not look like more than one part of the line."""
    return name if _PLAIN.issuperset(name) else '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'
