"""Who may come in: how many requests may wait, of one tenant and in all. Pure."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from mashbox.errors import OverloadedError, QueueFullError

MOST_WAITING = 256
"""Requests that may wait for a slot in all."""
MOST_OF_TENANT = 32
"""Requests of one tenant that may wait."""
MOST_COUNTS_OF_TENANT = 64
"""Counts of tokens of one tenant: for it the queue is full then, so that it cannot fill it for all others."""
LONGEST_RETRY_S = 60


class Guest(Protocol):
    """A request that has not ended."""

    @property
    def tenant(self) -> str: ...

    @property
    def has_slot(self) -> bool: ...

    @property
    def is_answer(self) -> bool:
        """Not a count of tokens, which needs no slot."""
        ...


def check_admission(guest: Guest, guests: Collection[Guest], slots: int, mean_s: float) -> None:
    """Raise OverloadedError or QueueFullError when one more guest is too much.

    `mean_s` is how long requests hold a slot lately, in seconds. Those for whom a slot is free do not wait.
    """
    running = sum([other.has_slot for other in guests])
    free, waiting = max(slots - running, 0), len(guests) - running
    mine = sum(
        [
            not other.has_slot and other.tenant == guest.tenant and other.is_answer == guest.is_answer
            for other in guests
        ]
    )
    retry_after = max(1, min(LONGEST_RETRY_S, round(mean_s * waiting / slots)))
    if waiting - free >= MOST_WAITING:
        raise QueueFullError(
            f"The queue is full: {waiting} requests are waiting. Please try again later.",
            retry_after=retry_after,
        )
    if not guest.is_answer and mine >= MOST_COUNTS_OF_TENANT:
        raise QueueFullError(
            f"The queue is full for you: {mine} prompts are waiting to be counted. Please try again later.",
            retry_after=retry_after,
        )
    if guest.is_answer and mine - free >= MOST_OF_TENANT:
        raise OverloadedError(
            f"Too many requests of yours are waiting for a slot ({mine}). Please try again later.",
            retry_after=retry_after,
        )
