"""engine/fair_line.py: tenants take turns."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from mashbox.engine.fair_line import FairLine


@dataclass(frozen=True)
class Item:
    tenant: str
    number: int


def line_of(tenants: str) -> FairLine[Item]:
    line: FairLine[Item] = FairLine()
    for number, tenant in enumerate(tenants):
        line.add(Item(tenant, number))
    return line


def drain(line: FairLine[Item]) -> str:
    """The tenants in the order in which their items are taken."""
    taken = ""
    while line:
        item = next(iter(line))
        line.take(item)
        taken += item.tenant
    return taken


def test_a_greedy_tenant_waits_for_its_turn() -> None:
    assert drain(line_of("aaaaaabbc")) == "abcabaaaa"


def test_one_tenant_is_served_in_order() -> None:
    line = line_of("aaa")
    assert [item.number for item in line] == [0, 1, 2]


def test_taking_from_the_middle_uses_the_turn_and_removing_does_not() -> None:
    line = line_of("aab")
    second = list(line)[1]
    line.take(second)
    assert [item.tenant for item in line] == ["b", "a"]
    line = line_of("aab")
    line.remove(list(line)[1])
    assert [item.tenant for item in line] == ["a", "b"]


@given(st.text("abcd", max_size=40))
def test_everyone_is_served_and_nobody_waits_for_more_than_one_turn_of_each_other(tenants: str) -> None:
    line = line_of(tenants)
    assert len(line) == len(tenants)
    order = drain(line)
    assert sorted(order) == sorted(tenants)
    for tenant in set(tenants):
        waits = [len(part) for part in order[: order.rindex(tenant)].split(tenant)]
        assert max(waits) <= len(set(tenants)) - 1
