"""A topology in pieces, for builders none of which holds all of its edges.

A direction is divided by ranges of the nodes that edges start from: pieces of neighbouring ranges,
put one after another, are the arrays of the whole direction.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from omnigraph.search.topology.csr import (
    Csr,
    Ints,
    Packing,
    build_csr,
    id_type,
    sorted_distinct,
)


def node_ranges(count: int, pieces: int) -> list[range]:
    """Divide the dense ids of a node type among pieces.

    >>> node_ranges(5, 2)
    [range(0, 2), range(2, 5)]
    """
    bounds = [number * count // pieces for number in range(pieces + 1)]
    return [range(first, stop) for first, stop in pairwise(bounds)]


class PieceBuilder:
    """Arranges the edges that start in a range of nodes; they come in any order.

    `counts` are the numbers of nodes at either end and of edges. `indptr` of the piece begins at
    the first node of the range with 0.
    """

    def __init__(
        self, within: range, counts: tuple[int, int, int], *, edges_expected: int, same_type: bool
    ) -> None:
        self._first = within.start
        self._counts = (len(within), *counts[1:])
        self._same_type = same_type
        self._packing = Packing.of(*self._counts)
        self._keys: NDArray[np.uint64] = np.empty(edges_expected if self._packing else 0, np.uint64)
        self._count = 0
        self._unpacked: list[tuple[Ints, Ints, Ints]] = []

    def add(self, starts: Ints, ends: Ints, edges: Ints) -> None:
        """Add edges by dense ids."""
        own = starts - self._first if self._first else starts
        if self._packing is None:
            self._unpacked.append((own, ends, edges))
            return
        stop = self._count + len(own)
        if stop > len(self._keys):
            # A few nodes with many edges make a piece larger than others.
            more = np.empty(max(stop - len(self._keys), len(self._keys)), np.uint64)
            self._keys = np.concatenate([self._keys, more])
        self._packing.pack(self._keys[self._count : stop], own, ends, edges)
        self._count = stop

    def csr(self) -> Csr:
        """Return the piece."""
        if self._packing is None:
            return self._sorted()
        keys = self._keys[: self._count]
        return self._packing.csr(keys, same_type=self._same_type, first=self._first)

    def _sorted(self) -> Csr:
        """Arrange edges whose ids are too large to be packed."""
        nothing = np.zeros(0, np.int64)
        starts, ends, edges = (
            np.concatenate(arrays)
            for arrays in zip((nothing, nothing, nothing), *self._unpacked, strict=True)
        )
        order = np.argsort(edges)
        starts, ends, edges = starts[order], ends[order], edges[order]
        made = build_csr(
            starts,
            ends.astype(id_type(self._counts[1])),
            counts=self._counts[:2],
            edges=edges,
            same_type=False,
        )
        is_loop = starts + self._first == ends
        loops = sorted_distinct(ends[is_loop]) if self._same_type else ends[:0]
        return replace(
            made,
            edges=made.edges.astype(id_type(self._counts[2])),
            loops=loops.astype(id_type(self._counts[1])),
        )
