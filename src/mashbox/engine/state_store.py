"""Moves states between slots and host memory; the only caller of the backend's `save` and `restore`.

An image is checked before it touches a slot: that it is of these tokens, this tenant and this model, and
that no byte has changed. After a restore the library's positions must be those that were saved.
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Callable

import xxhash

from mashbox.engine.backend import Backend
from mashbox.engine.host_memory import HostMemory, Image, Room

log = logging.getLogger(__name__)


class StateStore:
    """Images of one backend's slots.

    `namespace` tells models and settings apart; `dropped` counts the images that were no good.
    """

    def __init__(self, backend: Backend, memory: HostMemory, namespace: bytes) -> None:
        self._backend = backend
        self._memory = memory
        self._namespace = namespace
        self.dropped = 0

    def save(
        self, slot: int, tokens: array[int], tenant: str, partial: bool, take: Callable[[int], Room | None]
    ) -> Image | None:
        """An image of a slot that holds `tokens`; None when `take` finds no room or the library refuses."""
        size = self._backend.state_size(slot, partial)
        if size == 0 or (room := take(size)) is None:
            return None
        image = Image(*room, size, partial, len(tokens), self._backend.positions(slot))
        view = self._memory.view(image.offset, size)
        try:
            self._backend.save(slot, partial, view)
        except Exception as error:
            self._memory.release(image)
            if not isinstance(error, RuntimeError):
                raise
            log.warning("a prompt's state could not be saved: %s", error)
            return None
        image.checksum = self._checksum(image, tokens, tenant, view)
        return image

    def restore(self, slot: int, image: Image, tokens: array[int], tenant: str) -> bool:
        """Put an image of the first `image.length` of `tokens` into a slot.

        A whole image needs an empty slot. False: the image is bad or the library refused it, and the slot
        is as it was or empty; the caller empties it.
        """
        view = self._memory.view(image.offset, image.size)
        if image.length > len(tokens) or self._checksum(image, tokens, tenant, view) != image.checksum:
            return self._drop("its bytes have changed")
        try:
            self._backend.restore(slot, image.partial, view)
        except RuntimeError as error:
            return self._drop(str(error))
        first, last = self._backend.positions(slot)
        # What a window has forgotten but a slot still held is not part of an image.
        if not image.partial and (first < image.positions[0] or last != image.positions[1]):
            return self._drop(f"its positions are {first} to {last}, not {image.positions}")
        return True

    def _drop(self, why: str) -> bool:
        log.error("a saved prompt state is no good and is computed again: %s", why)
        self.dropped += 1
        return False

    def _checksum(self, image: Image, tokens: array[int], tenant: str, data: memoryview) -> int:
        digest = xxhash.xxh3_64(self._namespace)
        digest.update(f"{tenant}\0{image.partial}\0{image.length}\0{image.positions}".encode())
        digest.update(memoryview(tokens)[: image.length])
        digest.update(data)
        return digest.intdigest()
