"""The clients: each goes round its own conversations and does to them what users do.

What a client does follows from the seed alone; when it happens is up to the server.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import httpx2 as httpx

from soak.conversation import Conversation, Family, Lengths
from soak.exchange import Ask, Patience, Reply, exchange
from soak.markers import Markers

Done = Callable[[Ask, Reply], Awaitable[None]]
"""Told about every answer that its client stayed for."""

ACTIONS = {
    "ask": 8,
    "again": 2,
    "edit": 2,
    "sampled": 2,
    "leave at once": 2,
    "leave soon": 2,
    "leave in mid-answer": 2,
}
"""How often each is done, relative to the others."""
LONGEST_WAIT_S = 0.5
"""A client that leaves soon waits so long at most: in line, in prefill, or for the first words."""


@dataclass(frozen=True, slots=True)
class Load:
    """How much is asked. `rounds` None: until told to stop. `turns`: a conversation has so many at most."""

    clients: int
    conversations: int
    """Open ones of each client; one that is full gives way to a new one."""
    families: int
    turns: int
    lengths: Lengths
    rounds: int | None = None


@dataclass(slots=True)
class Traffic:
    """All clients of one server."""

    url: str
    load: Load
    seed: int
    markers: Markers
    done: Done
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    counted: Counter[str] = field(default_factory=Counter)
    """What was done how often."""

    async def run(self) -> None:
        """All clients, until each has made its rounds or `stop` is set."""
        families: list[Family | None] = [
            Family.new(f"family {self.seed} {number}", self.load.lengths, self.markers)
            for number in range(self.load.families)
        ]
        async with httpx.AsyncClient(base_url=self.url, timeout=120) as http, asyncio.TaskGroup() as group:
            for number in range(self.load.clients):
                group.create_task(Client(self, http, number, [*families, None]).run())


class Client:
    """One user of the server: one request at a time."""

    def __init__(
        self, traffic: Traffic, http: httpx.AsyncClient, number: int, families: list[Family | None]
    ) -> None:
        self._traffic = traffic
        self._http = http
        self._number = number
        self._families = families
        self._pick = random.Random(f"client {traffic.seed} {number}")
        self._begun = 0
        self._open = [self._begin() for _ in range(traffic.load.conversations)]

    async def run(self) -> None:
        """Go round."""
        rounds = 0
        while rounds != self._traffic.load.rounds and not self._traffic.stop.is_set():
            await self._round()
            rounds += 1

    def _begin(self) -> Conversation:
        """Families take turns over all clients, so that shared beginnings meet."""
        family = self._families[(self._number + self._begun) % len(self._families)]
        name = f"{self._traffic.seed} {self._number} {self._begun}"
        self._begun += 1
        self._traffic.counted["conversations"] += 1
        return Conversation.new(name, family, self._traffic.load.lengths, self._traffic.markers)

    async def _round(self) -> None:
        place = self._pick.randrange(len(self._open))
        conversation = self._open[place]
        if len(conversation.turns) >= self._traffic.load.turns and conversation.answered:
            conversation = self._open[place] = self._begin()
        (action,) = self._pick.choices(list(ACTIONS), list(ACTIONS.values()))
        if len(conversation.turns) == 1 and action in ("again", "edit"):
            action = "ask"
        self._traffic.counted[action] += 1
        await self._act(action, conversation)

    async def _act(self, action: str, conversation: Conversation) -> None:
        if action == "again":
            conversation.ask_again()
        elif action == "edit":
            conversation.edit(self._pick)
        else:
            conversation.ask(self._pick)
        if action == "sampled":
            await self._sample(conversation)
        elif action.startswith("leave"):
            await self._leave(action, conversation)
        else:
            reply = await self._ask(self._greedy(conversation))
            conversation.answer(reply.text)

    def _greedy(self, conversation: Conversation) -> Ask:
        return Ask(conversation.messages, self._pick.choice((12, 12, 12, 40)))

    async def _ask(self, ask: Ask) -> Reply:
        reply = await exchange(self._http, ask)
        await self._traffic.done(ask, reply)
        return reply

    async def _sample(self, conversation: Conversation) -> None:
        """The answer is looked at, but the conversation goes on from a greedy one."""
        await self._ask(Ask(conversation.messages, 12, temperature=0.8, seed=self._pick.randrange(1000)))

    async def _leave(self, action: str, conversation: Conversation) -> None:
        reply = await exchange(self._http, Ask(conversation.messages, 40), self._patience(action))
        self._traffic.counted["left in mid-answer" if reply.texts else "left before the first word"] += 1

    def _patience(self, action: str) -> Patience:
        if action == "leave at once":
            return Patience(pieces=0)
        if action == "leave soon":
            return Patience(seconds=self._pick.random() * LONGEST_WAIT_S)
        return Patience(pieces=self._pick.randint(1, 6))
