"""How many bytes of request bodies the server holds at once, in all and for each tenant."""

from __future__ import annotations

from collections import Counter
from types import TracebackType

from starlette.types import ASGIApp, Receive, Scope, Send

from mashbox.errors import OverloadedError
from mashbox.http.record import record_in

MIB = 1024 * 1024
MOST_HELD = 256 * MIB
MOST_OF_TENANT = 64 * MIB
"""Two of the largest bodies."""
FREE_BYTES = 64 * 1024
"""The first bytes of each body, which are not counted: small bodies are never refused."""
RETRY_S = 5
_KEY = "mashbox.body_share"


class BodyBudget:
    """The bytes that are held now. Pure."""

    def __init__(self, most: int = MOST_HELD, most_of_tenant: int = MOST_OF_TENANT) -> None:
        self._most = most
        self._most_of_tenant = most_of_tenant
        self._of_tenant: Counter[str] = Counter()
        self.held = 0

    def take(self, tenant: str, size: int) -> None:
        """Hold `size` bytes more, or raise OverloadedError and hold what was held."""
        if self._of_tenant[tenant] + size > self._most_of_tenant:
            raise _overloaded("Request bodies of yours", self._most_of_tenant)
        if self.held + size > self._most:
            raise _overloaded("Request bodies of all clients", self._most)
        self._of_tenant[tenant] += size
        self.held += size

    def give_back(self, tenant: str, size: int) -> None:
        """Hold `size` bytes less."""
        self.held -= size
        self._of_tenant[tenant] -= size
        if not self._of_tenant[tenant]:
            del self._of_tenant[tenant]


def _overloaded(whose: str, most: int) -> OverloadedError:
    return OverloadedError(
        f"{whose} that are being read have more than {most // MIB} MiB together. Please try again later.",
        retry_after=RETRY_S,
    )


class BodyShare:
    """What one request's body holds of the budget, until its `with` block ends."""

    def __init__(self, budget: BodyBudget, tenant: str) -> None:
        self._budget = budget
        self._tenant = tenant
        self._counted = 0

    def __enter__(self) -> BodyShare:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._budget.give_back(self._tenant, self._counted)
        self._counted = 0

    def grow_to(self, size: int) -> None:
        """The body has `size` bytes by now. Raises OverloadedError when that is too much."""
        more = max(size - FREE_BYTES, 0) - self._counted
        if more > 0:
            self._budget.take(self._tenant, more)
            self._counted += more


class BodyBudgetMiddleware:
    """Gives each request its share. Behind the one that finds out whose the request is."""

    def __init__(self, app: ASGIApp, budget: BodyBudget) -> None:
        self._app = app
        self._budget = budget

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope[_KEY] = BodyShare(self._budget, record_in(scope).tenant)
        await self._app(scope, receive, send)


def share_in(scope: Scope) -> BodyShare:
    """The share of the request with this scope."""
    share: BodyShare = scope[_KEY]
    return share
