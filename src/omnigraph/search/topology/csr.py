"""Adjacency as three flat arrays, and how it is made.

1. Nodes and edges are *dense ids*: numbers from 0 without gaps (`row_numbers.py`).
2. `neighbours[indptr[n]:indptr[n + 1]]` are the neighbours of node `n`, one per edge record, in
   ascending order of neighbour, then edge. Parallel edges are kept.
3. `edges` is parallel to `neighbours`: the dense id of the edge record of each step.
4. An array is never changed once a `Csr` holds it; it may lie in a memory-mapped file.
5. Ids are 32-bit while they fit, so a direction costs 8 bytes per edge and 4 per node.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from omnigraph.dataclass import dataclass

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

    def spans(self, nodes: Ints) -> tuple[Ints, Ints]:
        """Return where the steps of nodes begin, and how many each has."""
        starts = self.indptr[nodes]
        return starts, self.indptr[nodes + 1] - starts

    def ends_at(self, positions: Ints) -> Ints:
        """Return the neighbours that steps lead to."""
        return self.neighbours[positions]

    def edges_at(self, positions: Ints) -> Ints:
        """Return the edges of steps."""
        return self.edges[positions]

    def ends_of(self, node: int) -> Ints:
        """Return the neighbours of one node."""
        return self.neighbours[self.indptr[node] : self.indptr[node + 1]]

    def degrees(self, nodes: Ints | None) -> Ints:
        """Count the steps of nodes, of all when `None`."""
        return np.diff(self.indptr) if nodes is None else self.spans(nodes)[1]

    def pair_counts(self, sources: Ints, targets: Ints) -> NDArray[np.int64]:
        """Count the edges that lead from each source to its target."""
        first, last = pair_range(self, sources, targets)
        return last - first

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


def bounded_runs(counts: Ints, *, total_max: int) -> Iterator[slice]:
    """Cut numbers into runs that add up to at most `total_max`, one number at least.

    >>> list(bounded_runs(np.array([2, 2, 9, 1]), total_max=4))
    [slice(0, 2, None), slice(2, 3, None), slice(3, 4, None)]
    """
    ends = np.cumsum(counts, dtype=np.int64)
    start = 0
    while start < len(counts):
        done = int(ends[start - 1]) if start else 0
        stop = max(int(np.searchsorted(ends, done + total_max, side="right")), start + 1)
        yield slice(start, stop)
        start = stop


def id_type(count: int) -> np.dtype[np.signedinteger[Any]]:
    """Return the narrowest integer type for ids below `count`.

    >>> id_type(10).name
    'int32'
    """
    return np.dtype(np.int32 if count <= NARROW_MAX else np.int64)


def spread(starts: Ints, counts: Ints) -> tuple[Ints, Ints]:
    """Return every position of the runs `starts[i] .. starts[i] + counts[i]`, with its run `i`."""
    rows = np.repeat(np.arange(len(starts), dtype=id_type(len(starts))), counts)
    return rows, spread_positions(starts, counts)


def spread_positions(starts: Ints, counts: Ints) -> Ints:
    """Return every position of the runs `starts[i] .. starts[i] + counts[i]`."""
    before = np.cumsum(counts, dtype=np.int64)
    total = int(before[-1]) if len(before) else 0
    before -= counts
    positions = np.repeat(starts - before, counts)
    positions += np.arange(total, dtype=positions.dtype)
    return positions


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
    bound = len(starts) if edges is None or not len(edges) else int(edges[-1]) + 1
    packing = Packing.of(*counts, bound)
    if packing is not None:
        keys = np.empty(len(starts), np.uint64)
        packing.pack(keys, starts, ends, np.arange(len(starts)) if edges is None else edges)
        return packing.csr(keys, same_type=same_type)
    order = _edge_order(starts, ends)
    numbers = order if edges is None else edges[order]
    return arranged_csr(
        starts[order],
        ends[order],
        numbers.astype(id_type(bound), copy=False),
        start_count=counts[0],
        same_type=same_type,
    )


def build_both(
    starts: Ints, ends: Ints, *, counts: tuple[int, int], same_type: bool
) -> tuple[Csr, Csr]:
    """Arrange edges by their start, and by their end.

    Sorting takes most of the time, and two threads do it: in place, since a thread of its own
    would allocate from memory of its own, which outlives it.
    """
    packings = [Packing.of(*both, len(starts)) for both in (counts, counts[::-1])]
    packed = []
    for packing, (one, other) in zip(packings, ((starts, ends), (ends, starts)), strict=True):
        if packing is None:
            return (
                build_csr(starts, ends, counts=counts, same_type=same_type),
                build_csr(ends, starts, counts=counts[::-1], same_type=same_type),
            )
        keys = np.empty(len(starts), np.uint64)
        packing.pack(keys, one, other, np.arange(len(starts), dtype=id_type(len(starts))))
        packed.append((packing, keys))
    with ThreadPoolExecutor(max_workers=1) as second:
        waiting = second.submit(packed[1][1].sort)
        packed[0][1].sort()
        waiting.result()
    made = []
    while packed:
        packing, keys = packed.pop(0)
        made.append(packing.sorted_csr(keys, same_type=same_type))
    return made[0], made[1]


@dataclass(frozen=True)
class Packing:
    """Edges as single integers: start, end and edge one after another.

    Sorting these is several times faster than an indirect sort, and what is sorted is taken apart
    again without reading any array out of order.
    """

    end_bits: int
    edge_bits: int
    counts: tuple[int, int, int]

    @classmethod
    def of(cls, starts: int, ends: int, edges: int) -> Packing | None:
        """Return a packing for ids below these numbers; None if they do not fit into 64 bits."""
        bits = [max(count - 1, 0).bit_length() for count in (starts, ends, edges)]
        return cls(bits[1], bits[2], (starts, ends, edges)) if sum(bits) <= _PACKED_BITS else None

    def pack(self, keys: NDArray[np.uint64], starts: Ints, ends: Ints, edges: Ints) -> None:
        """Fill an array with edges, without another array of its size."""
        np.copyto(keys, starts, casting="unsafe")
        keys <<= np.uint64(self.end_bits)
        np.bitwise_or(keys, ends, out=keys, casting="unsafe", dtype=np.uint64)
        keys <<= np.uint64(self.edge_bits)
        np.bitwise_or(keys, edges, out=keys, casting="unsafe", dtype=np.uint64)

    def csr(self, keys: NDArray[np.uint64], *, same_type: bool, first: int = 0) -> Csr:
        """Arrange packed edges, whose starts count from node `first` on; uses up the array."""
        keys.sort()
        return self.sorted_csr(keys, same_type=same_type, first=first)

    def sorted_csr(self, keys: NDArray[np.uint64], *, same_type: bool, first: int = 0) -> Csr:
        """Arrange packed edges that are sorted; uses up the array."""
        edges = self._tail(keys, self.edge_bits, self.counts[2])
        keys >>= np.uint64(self.edge_bits)
        has_parallel = bool((keys[1:] == keys[:-1]).any())
        neighbours = self._tail(keys, self.end_bits, self.counts[1])
        keys >>= np.uint64(self.end_bits)
        starts = keys.view(np.int64)
        loops = neighbours[:0]
        if same_type:
            ends = neighbours - first if first else neighbours
            loops = sorted_distinct(neighbours[starts == ends])
        return Csr(_indptr(starts, self.counts[0]), neighbours, edges, loops, has_parallel)

    @staticmethod
    def _tail(keys: NDArray[np.uint64], bits: int, count: int) -> Ints:
        found = np.empty(len(keys), id_type(count))
        ones = np.uint64((1 << bits) - 1)
        np.bitwise_and(keys, ones, out=found, casting="unsafe", dtype=np.uint64)
        return found


def arranged_csr(
    starts: Ints, ends: Ints, edges: Ints, *, start_count: int, same_type: bool
) -> Csr:
    """Make a `Csr` of edges that already are in order of start, end, edge."""
    repeated = (starts[1:] == starts[:-1]) & (ends[1:] == ends[:-1])
    loops = sorted_distinct(starts[starts == ends]) if same_type else starts[:0].copy()
    return Csr(_indptr(starts, start_count), ends, edges, loops, bool(repeated.any()))


def _indptr(starts: Ints, start_count: int) -> Ints:
    """Return where the steps of each node begin, and where the last ones end."""
    indptr = np.zeros(start_count + 1, dtype=id_type(len(starts)))
    np.cumsum(np.bincount(starts, minlength=start_count), out=indptr[1:])
    return indptr


def _edge_order(starts: Ints, ends: Ints) -> Ints:
    """Return the edges in order of start, end, edge, where these do not fit into one integer.

    Sorting by the end first and then, stably, by the start is the same order.
    """
    tail_bits = max(len(starts) - 1, 0).bit_length()
    by_end = _sorted_tail(ends.astype(np.uint64), tail_bits)
    return by_end[_sorted_tail(starts[by_end].astype(np.uint64), tail_bits)]


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


def find_in_csr(csr: Csr, sources: Ints, targets: Ints, edges: Ints) -> NDArray[np.int64]:
    """Return the position of each edge among the steps from its source to its target, or -1.

    Nodes that the adjacency does not have may be named.
    """
    is_known = (sources >= 0) & (targets >= 0) & (sources < csr.node_count)
    found = np.full(len(sources), -1, np.int64)
    known = np.flatnonzero(is_known)
    first, last = pair_range(csr, sources[known], targets[known])
    places = _bisect(csr.edges, first, last, edges[known], right=False)
    is_there = places < last
    is_there[is_there] = csr.edges[places[is_there]] == edges[known][is_there]
    found[known[is_there]] = places[is_there]
    return found


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
