"""What an answer must be like. Pure but for the question to the cold server."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import Protocol

from soak.exchange import Ask, Reply
from soak.markers import Markers


class Reference(Protocol):
    """Knows the right answers."""

    async def answer(self, ask: Ask) -> Reply:
        """The answer of a server that reuses nothing."""
        ...


@dataclass(slots=True)
class Checks:
    """Looks at every answer; `findings` are sentences, empty when all is well."""

    markers: Markers
    cold: Reference | None
    """None where answers need not equal cold ones, in the default mode."""
    findings: list[str] = field(default_factory=list)
    counted: Counter[str] = field(default_factory=Counter)
    _open: asyncio.Queue[tuple[Ask, Reply]] = field(default_factory=asyncio.Queue)

    async def take(self, ask: Ask, reply: Reply) -> None:
        """An answer whose client stayed."""
        self._check_ending(reply)
        self._check_words(ask, reply)
        if self.cold is not None and not ask.temperature and reply.whole:
            await self._open.put((ask, reply))

    async def compare(self) -> None:
        """Compare with cold answers, beside the traffic, until cancelled."""
        assert self.cold is not None
        while True:
            ask, reply = await self._open.get()
            try:
                self._check_same(ask, reply, await self.cold.answer(ask))
            finally:
                self._open.task_done()

    async def settled(self) -> None:
        """Wait until every answer is compared."""
        await self._open.join()

    def _check_ending(self, reply: Reply) -> None:
        self.counted["answers"] += 1
        if not reply.whole or reply.counts is None:
            self.findings.append(f"an answer ended with {reply.endings}")
            return
        self.counted["prompt tokens computed"] += reply.counts.prompt_n
        self.counted["prompt tokens reused"] += reply.counts.cache_n

    def _check_words(self, ask: Ask, reply: Reply) -> None:
        prompt = [content for _, content in ask.messages]
        self.counted["answers with a word of their own"] += bool(self.markers.found_in(reply.text))
        if strangers := self.markers.strangers(reply.text, prompt):
            self.findings.append(
                f"an answer has {', '.join(sorted(strangers))} of another conversation: {reply.text!r}"
            )

    def _check_same(self, ask: Ask, reply: Reply, cold: Reply) -> None:
        self.counted["answers compared with cold ones"] += 1
        assert reply.counts is not None
        assert cold.counts is not None
        if (reply.text, reply.endings) != (cold.text, cold.endings):
            self.findings.append(
                f"an answer differs from the cold one: {reply.text!r} and {cold.text!r}, "
                f"with {reply.counts.cache_n} tokens used again"
            )
        if reply.counts.predicted_n != cold.counts.predicted_n:
            self.findings.append(
                f"{reply.counts.predicted_n} new tokens, {cold.counts.predicted_n} cold: {reply.text!r}"
            )
        total, cold_total = reply.counts.prompt_n + reply.counts.cache_n, cold.counts.prompt_n
        if total != cold_total:
            self.findings.append(f"a prompt of {cold_total} tokens counted {total}")
