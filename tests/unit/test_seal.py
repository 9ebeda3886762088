from __future__ import annotations

import random

import pytest

from mashbox.engine.seal import SEAL, seal


def image(size: int) -> bytearray:
    return bytearray(random.Random(size).randbytes(size))


@pytest.mark.parametrize("size", [1, 7, 4095, 4096, 4097, 20_000])
def test_every_flipped_bit_shows(size: int) -> None:
    data = image(size)
    kept = seal(memoryview(data), False)
    assert len(kept) == SEAL
    for at in {0, size // 3, size // 2, size - 1}:
        for bit in range(8):
            data[at] ^= 1 << bit
            assert seal(memoryview(data), False) != kept
            data[at] ^= 1 << bit
    assert seal(memoryview(data), False) == kept


@pytest.mark.parametrize("size", [1, 4096, 20_000])
def test_length_and_kind_show(size: int) -> None:
    data = memoryview(image(size))
    assert seal(data, False) != seal(data, True)
    assert seal(data[:-1], False) != seal(data, False)
    zeros = memoryview(bytes(size + 4096))
    assert seal(zeros[:size], False) != seal(zeros, False)


def test_swapped_bytes_show() -> None:
    data = image(20_000)
    kept = seal(memoryview(data), False)
    data[100:200], data[300:400] = data[300:400], data[100:200]
    assert seal(memoryview(data), False) != kept
