"""Finds saved states that begin like a prompt. Pure.

A tree for each tenant: an edge is a block of `grid` tokens, compared byte by byte, so a node stands for
all the tokens up to it. A state is filed where it ends and where its snapshots are.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from itertools import islice

from mashbox.engine.states import SavedState, common_length

CHILDREN = 32
"""Continuations of a prefix that are compared in a lookup."""


class _Node:
    """The states filed at one prefix, and its continuations."""

    __slots__ = ("children", "states")

    def __init__(self) -> None:
        self.children: dict[bytes, _Node] = {}
        self.states: dict[SavedState, None] = {}

    @property
    def empty(self) -> bool:
        return not (self.children or self.states)


class PrefixIndex:
    """All saved states. Invariant: every node has a state at or below it."""

    def __init__(self, grid: int) -> None:
        self._grid = grid
        self._roots: dict[str, _Node] = {}

    @property
    def empty(self) -> bool:
        """Whether nothing is filed."""
        return not self._roots

    def add(self, state: SavedState) -> None:
        """File a state; its tokens and snapshots stay as they are from now on."""
        path = [self._roots.setdefault(state.tenant, _Node())]
        for block in self._blocks(state.tokens):
            path.append(path[-1].children.setdefault(block, _Node()))
        for depth in self._depths(state):
            path[depth].states[state] = None

    def remove(self, state: SavedState) -> None:
        """Forget a state that was added."""
        path, blocks = self._walk(state.tokens, state.tenant)
        for depth in self._depths(state):
            path[depth].states.pop(state, None)
        for depth in range(len(path) - 1, 0, -1):
            if path[depth].empty:
                del path[depth - 1].children[blocks[depth - 1]]
        if path[0].empty:
            del self._roots[state.tenant]

    def find(self, tokens: array[int], tenant: str) -> Iterator[tuple[int, SavedState]]:
        """States that share whole blocks with `tokens`, the best first.

        Each comes with the most that those after it can share with a cut or a snapshot, in tokens.
        """
        path, _ = self._walk(tokens, tenant)
        if not path:
            return
        deepest = len(path) - 1
        # Whatever lies below agrees with the prompt up to here.
        yield (deepest + 1) * self._grid, self._nearest_below(path[deepest], tokens[deepest * self._grid :])
        for depth in range(deepest, -1, -1):
            for state in path[depth].states:
                yield (depth + 1) * self._grid, state

    def _nearest_below(self, node: _Node, rest: array[int]) -> SavedState:
        """A state that begins with the next tokens as far as any does (of the first children)."""
        near = islice(node.children, CHILDREN)
        block = max(near, key=lambda block: common_length(array("i", block), rest), default=None)
        if block is not None:
            node = node.children[block]
        while not node.states:
            node = next(iter(node.children.values()))
        return next(reversed(node.states))

    def _walk(self, tokens: array[int], tenant: str) -> tuple[list[_Node], list[bytes]]:
        """The nodes from the root to the last that is there, and the blocks between them."""
        node = self._roots.get(tenant)
        path, blocks = ([], []) if node is None else ([node], [])
        for block in self._blocks(tokens) if node else ():
            if (child := path[-1].children.get(block)) is None:
                break
            path.append(child)
            blocks.append(block)
        return path, blocks

    def _blocks(self, tokens: array[int]) -> Iterator[bytes]:
        for start in range(0, len(tokens) - self._grid + 1, self._grid):
            yield tokens[start : start + self._grid].tobytes()

    def _depths(self, state: SavedState) -> set[int]:
        lengths = {len(state.tokens), *(snapshot.length for snapshot in state.snapshots)}
        return {length // self._grid for length in lengths}
