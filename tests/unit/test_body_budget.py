"""http/body_budget.py: what bodies hold is bounded, and given back however a request ends."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec
import pytest
from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from mashbox.errors import (
    BodyTooLargeError,
    ClientGoneError,
    InvalidRequestError,
    OverloadedError,
    RequestTimeoutError,
)
from mashbox.http.body import MAX_BODY_BYTES, read_json
from mashbox.http.body_budget import (
    FREE_BYTES,
    MOST_OF_TENANT,
    BodyBudget,
    BodyBudgetMiddleware,
    BodyShare,
)
from mashbox.http.record import open_record, record_in
from mashbox.http.refusal import put_refusal

DECODER = msgspec.json.Decoder(str)
PIECE = 100_000
HELD = PIECE - FREE_BYTES
"""What one PIECE counts for."""


CANCEL: Message = {"type": "the task is cancelled"}


def test_the_bounds_are_exact() -> None:
    budget = BodyBudget(most=100, most_of_tenant=60)
    budget.take("a", 60)
    with pytest.raises(OverloadedError, match="of yours"):
        budget.take("a", 1)
    budget.take("b", 40)
    for tenant in "bc":
        with pytest.raises(OverloadedError, match="of all clients") as caught:
            budget.take(tenant, 1)
        assert (caught.value.status, caught.value.retry_after) == (429, 5)
    assert budget.held == 100
    budget.give_back("a", 60)
    budget.take("c", 60)
    assert budget.held == 100


def test_a_tenant_can_send_two_of_the_largest_bodies() -> None:
    assert 2 * MAX_BODY_BYTES <= MOST_OF_TENANT
    budget = BodyBudget()
    for _ in range(2):
        BodyShare(budget, "a").grow_to(MAX_BODY_BYTES)
    with pytest.raises(OverloadedError):
        BodyShare(budget, "a").grow_to(MAX_BODY_BYTES)
    BodyShare(budget, "b").grow_to(MAX_BODY_BYTES)


def test_small_bodies_need_no_budget() -> None:
    budget = BodyBudget(most=0, most_of_tenant=0)
    with BodyShare(budget, "a") as share:
        share.grow_to(FREE_BYTES)
        with pytest.raises(OverloadedError):
            share.grow_to(FREE_BYTES + 1)
    assert budget.held == 0


def test_a_share_counts_what_has_come_and_gives_it_back_once() -> None:
    budget = BodyBudget()
    share = BodyShare(budget, "a")
    with share:
        for size in (10, FREE_BYTES, FREE_BYTES + 10, FREE_BYTES + 30, FREE_BYTES + 30):
            share.grow_to(size)
            assert budget.held == max(0, size - FREE_BYTES)
    with share:
        assert budget.held == 0
    assert budget.held == 0


def body(content: bytes, more: bool = False) -> Message:
    return {"type": "http.request", "body": content, "more_body": more}


def read(budget: BodyBudget, messages: Sequence[Message], held: Sequence[int], tenant: str = "a") -> object:
    """read_json behind the middleware; `held` is what the budget holds whenever more is asked for."""
    pending, seen, results = list(messages), [], []

    async def receive() -> Message:
        seen.append(budget.held)
        message = pending.pop(0)
        if message is CANCEL:
            raise asyncio.CancelledError
        return message

    async def send(message: Message) -> None:
        raise AssertionError

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        results.append(await read_json(Request(scope, receive), DECODER))

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/",
        "headers": [(b"content-type", b"application/json")],
    }
    open_record(scope)
    record_in(scope).tenant = tenant
    if any(message.get("late") for message in messages):
        put_refusal(scope, RequestTimeoutError("late"))
    try:
        asyncio.run(BodyBudgetMiddleware(app, budget)(scope, receive, send))
    finally:
        assert seen == list(held)
        assert budget.held == 0
    return results[0]


def test_a_body_is_counted_until_it_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    budget = BodyBudget()
    seen = []
    monkeypatch.setattr("mashbox.http.body.check_shape", lambda body: seen.append(budget.held))
    text = b"a" * (PIECE - 1)
    pieces = [body(b'"' + text, more=True), body(b'"')]
    assert read(budget, pieces, [0, HELD]) == text.decode()
    assert seen == [HELD + 1]


@pytest.mark.parametrize(
    ("last", "error"),
    [
        (body(b"no JSON"), InvalidRequestError),
        (body(b"a" * MAX_BODY_BYTES, more=True), BodyTooLargeError),
        (body(b"a" * PIECE, more=True), OverloadedError),
        ({"type": "http.disconnect"}, ClientGoneError),
        (CANCEL, asyncio.CancelledError),
        ({**body(b""), "late": True}, RequestTimeoutError),
    ],
)
def test_it_is_given_back_however_the_request_ends(last: Message, error: type[BaseException]) -> None:
    budget = BodyBudget(most_of_tenant=PIECE)
    with pytest.raises(error):
        read(budget, [body(b"a" * PIECE, more=True), last], [0, HELD])
