"""The answers of a server that reuses nothing: one slot, no host memory, and another prompt before each.

A process of its own, so that nothing the server under test holds can have a part in them.
"""

from __future__ import annotations

import httpx2 as httpx

from soak.errors import SoakError
from soak.exchange import Ask, Reply, exchange

_OTHER = "."
"""A prompt that no conversation begins with."""


class Cold:
    """Asks the reference server, each thing once."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http
        self._known: dict[Ask, Reply] = {}

    @property
    def asked(self) -> int:
        """Different requests so far."""
        return len(self._known)

    async def answer(self, ask: Ask) -> Reply:
        """The cold answer. Raises SoakError when it is not cold, or no answer."""
        if ask not in self._known:
            self._known[ask] = await self._compute(ask)
        return self._known[ask]

    async def _compute(self, ask: Ask) -> Reply:
        await self._displace()
        reply = await exchange(self._http, ask)
        if not reply.whole or reply.counts is None:
            raise SoakError(f"the reference server did not answer: {reply.endings}")
        if reply.counts.cache_n:
            raise SoakError(f"the reference server used {reply.counts.cache_n} tokens again")
        return reply

    async def _displace(self) -> None:
        response = await self._http.post("/v1/completions", json={"prompt": _OTHER, "max_tokens": 1})
        if response.status_code != 200:
            raise SoakError(f"the reference server refused a request: {response.text}")
