"""http/connection.py: work ends when its client leaves."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mashbox.errors import ClientGoneError, EngineError
from mashbox.http.connection import while_connected


async def stays() -> dict[str, Any]:
    await asyncio.Event().wait()
    raise AssertionError


async def leaves() -> dict[str, Any]:
    await asyncio.sleep(0.01)
    return {"type": "http.disconnect"}


async def work() -> int:
    await asyncio.sleep(0)
    return 5


def test_the_result_comes_through() -> None:
    assert asyncio.run(while_connected(stays, work())) == 5


def test_errors_come_through() -> None:
    async def fail() -> None:
        raise EngineError("died")

    with pytest.raises(EngineError):
        asyncio.run(while_connected(stays, fail()))


def test_leaving_cancels_the_work() -> None:
    cancelled = []

    async def long() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    with pytest.raises(ClientGoneError):
        asyncio.run(while_connected(leaves, long()))
    assert cancelled == [True]
