"""Adjacency as three flat arrays, and how it is made.

1. Nodes and edges are *dense ids*: numbers from 0 without gaps (`row_numbers.py`).
2. `neighbours[indptr[n]:indptr[n + 1]]` are the neighbours of node `n`, one per edge record, in
   ascending order of neighbour, then edge. Parallel edges are kept.
3. `edges` is parallel to `neighbours`: the dense id of the edge record of each step.
4. An array is never changed once a `Csr` holds it; it may lie in a memory-mapped file.
5. Ids are 32-bit while they fit, so a direction costs 8 bytes per edge and 4 per node.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

Ints: TypeAlias = NDArray[np.signedinteger[Any]]
"""Dense ids, positions or counts; 32 or 64 bits wide."""
RowIds: TypeAlias = NDArray[np.uint64]
Mask: TypeAlias = NDArray[np.bool_]

NARROW_MAX: Final = 2**31 - 1
_PACKED_BITS: Final = 64


@dataclass(frozen=True, eq=False)
class Csr:
    """The edges of one type in one direction, by the node that they start from."""

    indptr: Ints
    neighbours: Ints
    edges: Ints
    loops: Ints
    """Nodes with an edge to themselves, ascending; empty between different types."""
    has_parallel: bool
    """Whether some node has the same neighbour twice."""

    @property
    def node_count(self) -> int:
        """How many nodes edges can start from."""
        return len(self.indptr) - 1

    @property
    def edge_count(self) -> int:
        """How many edge records there are."""
        return len(self.neighbours)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        arrays = (self.indptr, self.neighbours, self.edges, self.loops)
        return sum(array.nbytes for array in arrays)

    def step_starts(self) -> Ints:
        """Return the node at which each step starts: `indptr` written out, 4 bytes per edge."""
        counts = np.diff(self.indptr)
        return np.repeat(np.arange(self.node_count, dtype=id_type(self.node_count)), counts)


def sorted_distinct(values: Ints) -> Ints:
    """Return the distinct values, ascending.

    `np.unique` hashes whole numbers, which takes several times longer than sorting them.

    >>> sorted_distinct(np.array([7, 3, 7])).tolist()
    [3, 7]
    """
    if len(values) < 2:
        return values
    ordered = np.sort(values)
    is_first = np.empty(len(ordered), dtype=np.bool_)
    is_first[0] = True
    np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
    return ordered[is_first]


def id_type(count: int) -> np.dtype[np.signedinteger[Any]]:
    """Return the narrowest integer type for ids below `count`.

    >>> id_type(10).name
    'int32'
    """
    return np.dtype(np.int32 if count <= NARROW_MAX else np.int64)


def build_csr(
    starts: Ints,
    ends: Ints,
    *,
    counts: tuple[int, int],
    same_type: bool,
    edges: Ints | None = None,
) -> Csr:
    """Arrange edges by their start.

    `counts` are the numbers of nodes at either end. `edges` are the ascending dense ids of the
    edges; `None` means that position `i` of both arrays is edge `i`.
    """
    order = _edge_order(starts, ends, start_count=counts[0], end_count=counts[1])
    numbers = order if edges is None else edges[order]
    return arranged_csr(
        starts[order],
        ends[order],
        numbers.astype(id_type(_bound(starts, edges)), copy=False),
        start_count=counts[0],
        same_type=same_type,
    )


def _bound(starts: Ints, edges: Ints | None) -> int:
    if edges is None or not len(edges):
        return len(starts)
    return int(edges[-1]) + 1


def arranged_csr(
    starts: Ints, ends: Ints, edges: Ints, *, start_count: int, same_type: bool
) -> Csr:
    """Make a `Csr` of edges that already are in order of start, end, edge."""
    width = id_type(len(starts))
    indptr = np.zeros(start_count + 1, dtype=width)
    np.cumsum(np.bincount(starts, minlength=start_count), out=indptr[1:])
    repeated = (starts[1:] == starts[:-1]) & (ends[1:] == ends[:-1])
    loops = sorted_distinct(starts[starts == ends]) if same_type else starts[:0].copy()
    return Csr(indptr, ends, edges, loops, bool(repeated.any()))


def _edge_order(starts: Ints, ends: Ints, *, start_count: int, end_count: int) -> Ints:
    """Return the edges in order of start, end, edge.

    A sort of one packed integer per edge is several times faster than an indirect sort.
    """
    total = len(starts)
    start_bits, end_bits, edge_bits = (
        max(count - 1, 0).bit_length() for count in (start_count, end_count, total)
    )
    if start_bits + end_bits + edge_bits <= _PACKED_BITS:
        packed = starts.astype(np.uint64)
        packed <<= np.uint64(end_bits)
        packed |= ends.astype(np.uint64)
        return _sorted_tail(packed, edge_bits)
    # Sorting by the end first and then, stably, by the start is the same order.
    by_end = _sorted_tail(ends.astype(np.uint64), edge_bits)
    return by_end[_sorted_tail(starts[by_end].astype(np.uint64), edge_bits)]


def _sorted_tail(keys: NDArray[np.uint64], tail_bits: int) -> Ints:
    """Return the positions of `keys` in ascending order of key, then position."""
    if not len(keys):
        return np.empty(0, np.int64)
    keys <<= np.uint64(tail_bits)
    keys |= np.arange(len(keys), dtype=np.uint64)
    keys.sort()
    keys &= np.uint64((1 << tail_bits) - 1)
    return keys.view(np.int64)


# -- changing --------------------------------------------------------------------------------------
# Each costs a copy of the arrays that it changes, never a sort of them.


def without_edges(csr: Csr, kept: Mask) -> Csr:
    """Return a `Csr` of the edges that are `kept`, a mask over dense ids of edges."""
    stays = kept[csr.edges]
    before = np.zeros(len(stays) + 1, dtype=csr.indptr.dtype)
    np.cumsum(stays, out=before[1:])
    indptr, neighbours, edges = before[csr.indptr], csr.neighbours[stays], csr.edges[stays]
    left = Csr(indptr, neighbours, edges, csr.loops, False)
    loops = csr.loops
    if len(loops):
        first, last = pair_range(left, loops, loops)
        loops = loops[last > first]
    return Csr(indptr, neighbours, edges, loops, csr.has_parallel and _has_parallel(left))


def renumbered_csr(
    csr: Csr,
    *,
    node_map: Ints | None,
    end_map: Ints | None,
    edge_map: Ints | None,
    node_count: int,
) -> Csr:
    """Return a `Csr` over other dense ids.

    A map gives the new id of every old one and keeps their order, as all numberings of one dataset
    do; `None` means that no old id changes. A node with edges must not be dropped.
    """
    return Csr(
        _renumbered_indptr(csr, node_map, node_count),
        csr.neighbours if end_map is None else end_map[csr.neighbours],
        csr.edges if edge_map is None else edge_map[csr.edges],
        csr.loops if node_map is None else node_map[csr.loops],
        csr.has_parallel,
    )


def with_edges(csr: Csr, added: Csr) -> Csr:
    """Return a `Csr` of the edges of both; no edge is in both, and both number the same nodes."""
    if not added.edge_count:
        return csr
    starts = added.step_starts()
    positions = _insert_positions(csr, starts, added)
    first, last = pair_range(csr, starts, added.neighbours)
    return Csr(
        csr.indptr.astype(id_type(csr.edge_count + added.edge_count)) + added.indptr,
        np.insert(csr.neighbours, positions, added.neighbours),
        np.insert(csr.edges, positions, added.edges),
        np.union1d(csr.loops, added.loops).astype(csr.neighbours.dtype, copy=False),
        csr.has_parallel or added.has_parallel or bool((last > first).any()),
    )


def pair_range(
    csr: Csr, sources: Ints, targets: Ints
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return where in the neighbours of each source its target begins and ends."""
    first = csr.indptr[sources].astype(np.int64)
    last = csr.indptr[sources + 1].astype(np.int64)
    low = _bisect(csr.neighbours, first, last, targets, right=False)
    return low, _bisect(csr.neighbours, low, last, targets, right=True)


def _bisect(
    values: Ints, low: NDArray[np.int64], high: NDArray[np.int64], wanted: Ints, *, right: bool
) -> NDArray[np.int64]:
    """Search all runs at once: as many rounds as the longest run has bits."""
    low, high = low.copy(), high.copy()
    active = np.flatnonzero(low < high)
    while len(active):
        middle = (low[active] + high[active]) >> 1
        found, target = values[middle], wanted[active]
        goes_right = found <= target if right else found < target
        low[active[goes_right]] = middle[goes_right] + 1
        high[active[~goes_right]] = middle[~goes_right]
        active = active[low[active] < high[active]]
    return low


def _insert_positions(csr: Csr, starts: Ints, added: Csr) -> NDArray[np.int64]:
    """Return where each step of `added` goes: by neighbour, then by edge."""
    first, last = pair_range(csr, starts, added.neighbours)
    return _bisect(csr.edges, first, last, added.edges, right=False)


def _has_parallel(csr: Csr) -> bool:
    same = csr.neighbours[1:] == csr.neighbours[:-1]
    if not same.any():
        return False
    starts = csr.step_starts()
    return bool((same & (starts[1:] == starts[:-1])).any())


def _renumbered_indptr(csr: Csr, node_map: Ints | None, node_count: int) -> Ints:
    if node_map is None:
        extra = node_count - csr.node_count
        return csr.indptr if not extra else np.pad(csr.indptr, (0, extra), mode="edge")
    counts = np.diff(csr.indptr)
    used = np.flatnonzero(counts)
    spread = np.zeros(node_count, dtype=csr.indptr.dtype)
    spread[node_map[used]] = counts[used]
    indptr = np.zeros(node_count + 1, dtype=csr.indptr.dtype)
    np.cumsum(spread, out=indptr[1:])
    return indptr
