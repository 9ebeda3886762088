"""What is known of one HTTP request: its id, whose it is, and what became of it."""

from __future__ import annotations

import re
import time
import uuid
from dataclasses import dataclass, field

from starlette.requests import Request
from starlette.types import Scope

from mashbox.http.echo import echo
from mashbox.logs.escape import label

KEY = "mashbox.record"
"""Where a request's scope holds its record."""
CANCELLED = "cancelled"
"""How a request ended whose client left."""
_CLIENT_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")


@dataclass(slots=True)
class Outcome:
    """An answer's tokens and times, as far as it came. Times in seconds; None: it did not get there."""

    id: str
    """The answer's id, as the client sees it; empty where only tokens were counted."""
    prompt_tokens: int
    cached_tokens: int | None = None
    completion_tokens: int | None = None
    pieces: int | None = None
    """Of an answer that was cut off: pieces of text it had, about as many as tokens."""
    queue_s: float | None = None
    """From the request's arrival until it had a slot."""
    first_token_s: float | None = None
    """From the request's arrival to its first output."""
    tokens_per_s: float | None = None
    finish: str | None = None
    """stop, length, tool_calls or counted; None: it was cut off."""


@dataclass(slots=True)
class RequestRecord:
    """One HTTP request, from its first line to its end. Everyone on the way adds what he knows."""

    method: str
    path: str
    """As the client sent it: never logged."""
    id: str = field(default_factory=lambda: f"req_{uuid.uuid4().hex}")
    begun: float = field(default_factory=time.monotonic)
    client_request_id: str = ""
    """The client's own X-Request-Id, if it is a well-formed one."""
    tenant: str = ""
    """Whose key it came with; empty without keys."""
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    """What its answer carries besides its own headers, also when it is an error."""
    session: str = ""
    """What the client calls its session: a label."""
    status: int = 0
    """0: no answer was begun."""
    error: str = ""
    """Code or kind of the error that it was answered with, or that ended its answer."""
    seconds: float = 0.0
    """From the first line to the end of the answer."""
    outcome: Outcome | None = None

    @property
    def finish(self) -> str:
        """How its answer ended: the outcome's word, an error's name or "cancelled"; else empty."""
        outcome = self.outcome
        if outcome is not None and outcome.finish is not None:
            return outcome.finish
        if self.error:
            return self.error
        return CANCELLED if outcome is not None or not self.status else ""

    def tag_session(self, session: object) -> None:
        """A name for the session that the client sent; the first one counts, and only a text."""
        if not self.session and isinstance(session, str):
            self.session = label(session)


def open_record(scope: Scope) -> RequestRecord:
    """A new record, kept in the request's scope."""
    record = scope[KEY] = RequestRecord(scope["method"], echo(scope["path"]))
    for name, value in scope["headers"]:
        if name == b"x-session-id":
            record.tag_session(value.decode("utf-8", "backslashreplace"))
        elif name == b"x-request-id" and _CLIENT_ID.fullmatch(value):
            record.client_request_id = value.decode()
    return record


def record_in(scope: Scope) -> RequestRecord:
    """The record of the request with this scope."""
    record: RequestRecord = scope[KEY]
    return record


def record_of(request: Request) -> RequestRecord:
    """The record of a request."""
    return record_in(request.scope)


def note_error(scope: Scope, name: str) -> None:
    """An error ended the answer of this scope's request, if it has a record."""
    record: RequestRecord | None = scope.get(KEY)
    if record is not None:
        record.error = name
