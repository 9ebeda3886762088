"""engine/admission.py: how many may wait."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from mashbox.engine.admission import (
    MOST_COUNTS_OF_TENANT,
    MOST_OF_TENANT,
    MOST_WAITING,
    check_admission,
)
from mashbox.errors import OverloadedError, QueueFullError


@dataclass(frozen=True)
class Someone:
    tenant: str = "a"
    has_slot: bool = False
    is_answer: bool = True


RUNNING = [Someone("x", has_slot=True)] * 4
SLOTS = 4


def refusal(guest: Someone, guests: list[Someone], mean_s: float = 1.0) -> OverloadedError | None:
    try:
        check_admission(guest, guests, SLOTS, mean_s)
    except OverloadedError as error:
        return error
    return None


@pytest.mark.parametrize(
    ("guest", "waiting", "kind"),
    [
        (Someone("a"), [Someone("a")] * (MOST_OF_TENANT - 1), None),
        (Someone("a"), [Someone("a")] * MOST_OF_TENANT, OverloadedError),
        (Someone("b"), [Someone("a")] * MOST_OF_TENANT, None),
        (Someone("b"), [Someone(str(number)) for number in range(MOST_WAITING - 1)], None),
        (Someone("b"), [Someone(str(number)) for number in range(MOST_WAITING)], QueueFullError),
        (Someone("a", is_answer=False), [Someone("a")] * MOST_OF_TENANT, None),
        (Someone("a"), [Someone("a", is_answer=False)] * MOST_OF_TENANT, None),
        (
            Someone("b", is_answer=False),
            [Someone(str(number)) for number in range(MOST_WAITING)],
            QueueFullError,
        ),
        (Someone("b"), [Someone("c", is_answer=False)] * MOST_WAITING, QueueFullError),
        (counting := Someone("a", is_answer=False), [counting] * (MOST_COUNTS_OF_TENANT - 1), None),
        (counting, [counting] * MOST_COUNTS_OF_TENANT, QueueFullError),
        (Someone("b", is_answer=False), [counting] * MOST_COUNTS_OF_TENANT, None),
    ],
)
def test_limits(guest: Someone, waiting: list[Someone], kind: type[OverloadedError] | None) -> None:
    error = refusal(guest, RUNNING + waiting)
    assert (error and type(error)) is kind


def test_those_for_whom_a_slot_is_free_do_not_wait() -> None:
    idle = [Someone("a")] * (MOST_OF_TENANT + SLOTS - 1)
    assert refusal(Someone("a"), idle) is None
    assert type(refusal(Someone("a"), [*idle, Someone("a")])) is OverloadedError


@pytest.mark.parametrize(("mean_s", "seconds"), [(0.001, 1), (1.0, 8), (3.0, 24), (100.0, 60)])
def test_retry_after_is_the_time_the_queue_takes(mean_s: float, seconds: int) -> None:
    error = refusal(Someone("a"), RUNNING + [Someone("a")] * 32, mean_s)
    assert error is not None
    assert error.retry_after == seconds
