"""Real models whose saved states go bad: backends for `WorkerConfig.backend`.

Damage is done in the engine's own memory and late, at the first computation after a save, when whatever
the engine noted about the bytes has been noted. Only every second state is damaged, so good ones are
restored beside bad ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mashbox.config import ModelConfig
from mashbox.engine.backend import Logits
from mashbox.engine.llama import LlamaBackend


class LateDamage(LlamaBackend):
    """Keeps hold of the images that were saved, and damages some before it computes anything."""

    EVERY = 2

    def __init__(self, config: ModelConfig, progress: Callable[[float], None]) -> None:
        super().__init__(config, progress)
        self._saves = 0
        self._fresh: list[memoryview] = []

    def save(self, slot: int, partial: bool, into: memoryview) -> None:
        super().save(slot, partial, into)
        self._saves += 1
        if self._saves % self.EVERY == 0:
            self._fresh.append(memoryview(into))

    def prefill(self, slot: int, start: int, tokens: Sequence[int], want_logits: bool) -> Logits | None:
        self._damage_fresh()
        return super().prefill(slot, start, tokens, want_logits)

    def _damage_fresh(self) -> None:
        images, self._fresh = self._fresh, []
        for image in images:
            self._damage(image)

    def _damage(self, image: memoryview) -> None:
        raise NotImplementedError


class Flipping(LateDamage):
    """One bit in the middle is another one."""

    def _damage(self, image: memoryview) -> None:
        image[len(image) // 2] ^= 1


class EarlyFlipping(Flipping):
    """The first saved states go bad, all of them, and no later ones."""

    EVERY = 1
    EARLY = 6

    def _damage(self, image: memoryview) -> None:
        if self._saves <= self.EARLY:
            super()._damage(image)


class Cutting(LateDamage):
    """The last tenth was never written."""

    def _damage(self, image: memoryview) -> None:
        tail = len(image) // 10
        image[-tail:] = bytes(tail)


class Swapping(LateDamage):
    """Two states of equal size have changed places."""

    EVERY = 1

    def __init__(self, config: ModelConfig, progress: Callable[[float], None]) -> None:
        super().__init__(config, progress)
        self._single: dict[int, memoryview] = {}
        """By size: the image that waits for another one."""

    def _damage(self, image: memoryview) -> None:
        other = self._single.pop(len(image), None)
        if other is None:
            self._single[len(image)] = image
        else:
            image[:], other[:] = bytes(other), bytes(image)


class Refusing(LlamaBackend):
    """The library does not take a state back."""

    def restore(self, slot: int, partial: bool, image: memoryview) -> None:
        raise RuntimeError("scripted: this state is refused")


class Unsaving(LlamaBackend):
    """The library does not give a state away."""

    def save(self, slot: int, partial: bool, into: memoryview) -> None:
        raise RuntimeError("scripted: this state cannot be saved")


class Misplacing(LlamaBackend):
    """A restored state lacks its last token."""

    def restore(self, slot: int, partial: bool, image: memoryview) -> None:
        super().restore(slot, partial, image)
        super().trim(slot, self.positions(slot)[1])


@dataclass(frozen=True, slots=True)
class Kept:
    """A copy of a saved state, and its tokens' number."""

    image: bytes
    length: int


class Exchanging(LlamaBackend):
    """Restores another conversation's state, so that no check of the engine can tell.

    What a soak is for: it must notice by the answers alone.
    """

    REMEMBERED = 12

    def __init__(self, config: ModelConfig, progress: Callable[[float], None]) -> None:
        super().__init__(config, progress)
        self._kept: list[Kept] = []

    def save(self, slot: int, partial: bool, into: memoryview) -> None:
        super().save(slot, partial, into)
        self._kept = [Kept(bytes(into), self.positions(slot)[1] + 1), *self._kept[: self.REMEMBERED - 1]]

    def restore(self, slot: int, partial: bool, image: memoryview) -> None:
        wanted = next((kept for kept in self._kept if kept.image == image), None)
        others = [] if wanted is None else [kept for kept in self._kept if self._fits(kept, wanted)]
        if wanted is None or not others:
            super().restore(slot, partial, image)
            return
        super().restore(slot, partial, memoryview(bytearray(others[0].image)))
        super().trim(slot, wanted.length)

    @staticmethod
    def _fits(other: Kept, wanted: Kept) -> bool:
        return other.image != wanted.image and other.length >= wanted.length
