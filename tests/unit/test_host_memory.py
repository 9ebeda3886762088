"""Places in host memory: never more than the cap, never two on one byte."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mashbox.engine.host_memory import HostMemory, Image

PAGE = 4096


def image_of(place: tuple[int, int]) -> Image:
    return Image(*place, size=1, partial=False, length=1, positions=(0, 0))


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 5 * PAGE)), max_size=60))
def test_places_never_overlap_and_the_cap_holds(course: list[tuple[bool, int]]) -> None:
    memory = HostMemory(16 * PAGE + 100)
    held: list[Image] = []
    for take, number in course:
        if take and (place := memory.take(number)) is not None:
            assert place[1] >= number
            held.append(image_of(place))
        elif not take and held:
            memory.release(held.pop(number % len(held)))
        spans = sorted((image.offset, image.offset + image.room) for image in held)
        assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(spans))
        assert all(begin >= 0 and end <= memory.cap for begin, end in spans)
        assert memory.used == sum(image.room for image in held) <= memory.cap == 16 * PAGE
    for image in held:
        memory.release(image)
    # Nothing is lost between the holes: all of it can be had in one piece.
    assert memory.take(memory.cap) == (0, memory.cap)


def test_an_image_is_freed_when_its_last_holder_lets_go() -> None:
    memory = HostMemory(PAGE)
    place = memory.take(10)
    assert place is not None
    image = image_of(place)
    image.holders += 1
    memory.release(image)
    assert memory.used == PAGE
    assert memory.take(1) is None
    memory.release(image)
    assert memory.used == 0


def test_nothing_fits_into_no_memory() -> None:
    memory = HostMemory(0)
    assert memory.take(1) is None
    with pytest.raises(AssertionError):
        memory.view(0, 1)


def test_bytes_stay_where_they_were_put() -> None:
    memory = HostMemory(4 * PAGE)
    places = [memory.take(PAGE), memory.take(PAGE)]
    for number, place in enumerate(places):
        assert place is not None
        memory.view(place[0], 5)[:] = bytes([number] * 5)
    for number, place in enumerate(places):
        assert place is not None
        assert bytes(memory.view(place[0], 5)) == bytes([number] * 5)
