"""Numbers that are added up over the steps of nodes, without a row per step.

1. A *step* is a record of an edge, or a distinct neighbour: the language counts records where a hop
   names its edge and neighbours where it does not.
2. Steps are written out in chunks, so memory does not grow with them.
3. Values are whole numbers; the caller knows that no total leaves 64 bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from omnigraph.dataclass import dataclass
from omnigraph.search.topology.csr import Csr, Ints, Mask, bounded_runs
from omnigraph.search.topology.traverse import (
    UNGUARDED,
    Adjacency,
    Guard,
    LoopEnd,
    chunks,
    degrees,
    neighbours,
    reach,
    reach_count,
    steps,
)

Totals: TypeAlias = NDArray[np.int64]
StepValues: TypeAlias = Callable[[Ints, Ints | None], "NDArray[Any] | None"]
"""The value of each step, from its end and its edge record; None when every step is worth one."""

_STEPS_PER_CHUNK: Final = 1 << 20
_PAIRS_PER_CHUNK: Final = 1 << 22
_SINGLE_STARTS_MAX: Final = 4
"""So few searches are made one by one, which counts levels without listing them."""


@dataclass(frozen=True)
class Walk:
    """What one hop takes from a node."""

    by_record: bool = False
    """Whether every edge record counts, and not every neighbour."""
    min_hops: int = 1
    max_hops: int = 1
    loop_end: LoopEnd = "target"

    @property
    def is_single(self) -> bool:
        """Whether it is exactly one step long."""
        return self.min_hops == self.max_hops == 1


@dataclass(frozen=True, eq=False)
class _Run:
    """The steps of some nodes in the order of these nodes."""

    positions: slice
    """Which of the start nodes these are."""
    counts: Ints
    ends: Ints
    edges: Ints | None


def step_counts(
    adjacency: Adjacency, nodes: Ints | None, walk: Walk, *, guard: Guard = UNGUARDED
) -> Totals:
    """Count the steps of each node; of all nodes when `None`."""
    if walk.is_single and (walk.by_record or not adjacency.has_parallel):
        return degrees(adjacency, nodes).astype(np.int64)
    part = _one_csr(adjacency)
    if walk.is_single and part is not None:
        repeated = np.bincount(_owners(part, _repeats(part)), minlength=part.node_count)
        counts = (np.diff(part.indptr) - repeated).astype(np.int64)
        return counts if nodes is None else counts[nodes]
    found = np.zeros(_count(adjacency, nodes), np.int64)
    if nodes is not None and len(nodes) <= _SINGLE_STARTS_MAX and _is_search(adjacency, walk):
        for position, start in enumerate(nodes.tolist()):
            found[position] = reach_count(
                adjacency,
                start,
                min_hops=walk.min_hops,
                max_hops=walk.max_hops,
                loop_end=walk.loop_end,
                guard=guard,
            )
        return found
    for run in _runs(adjacency, nodes, walk, guard, with_edges=False):
        found[run.positions] = run.counts
    return found


def step_totals(
    adjacency: Adjacency,
    nodes: Ints | None,
    walk: Walk,
    values: StepValues,
    *,
    add: np.ufunc = np.add,
    nothing: int = 0,
    with_edges: bool = False,
    guard: Guard = UNGUARDED,
) -> Totals:
    """Add up the values of the steps of each node, or take their extreme with another `add`.

    A node without steps has `nothing`.
    """
    found = np.full(_count(adjacency, nodes), nothing, np.int64)
    for run in _runs(adjacency, nodes, walk, guard, with_edges=with_edges):
        used = np.flatnonzero(run.counts)
        if not len(used):
            continue
        worth = values(run.ends, run.edges)
        if worth is None:
            found[run.positions] = run.counts
            continue
        offsets = np.cumsum(run.counts, dtype=np.int64) - run.counts
        if add is np.add:
            totals = np.add.reduceat(worth, offsets[used], dtype=np.int64)
        else:
            totals = add.reduceat(worth, offsets[used])
        found[run.positions.start + used] = totals
    return found


def arrived_totals(
    adjacency: Adjacency,
    nodes: Ints,
    walk: Walk,
    values: Callable[[Ints, Ints | None], NDArray[Any]],
    *,
    add: np.ufunc = np.add,
    nothing: int = 0,
    with_edges: bool = False,
    guard: Guard = UNGUARDED,
) -> Totals:
    """Add up values at the ends of the steps of a few nodes, for every node that can be an end.

    `values` gets the position of the start node of each step, and its edge record.
    """
    found = np.full(adjacency.target_count, nothing, np.int64)
    for run in _runs(adjacency, nodes, walk, guard, with_edges=with_edges):
        span = np.arange(run.positions.start, run.positions.stop)
        add.at(found, run.ends, values(np.repeat(span, run.counts), run.edges))
    return found


def step_bound(adjacency: Adjacency, nodes: Ints | None, walk: Walk) -> int:
    """Return how many edge records a single hop from some nodes looks at, at most."""
    if nodes is None and walk.is_single:
        return sum(part.edge_count for part in adjacency.parts)
    if walk.is_single:
        return int(degrees(adjacency, nodes).sum(dtype=np.int64))
    return adjacency.edge_count * len(adjacency.parts) * _count(adjacency, nodes)


# -- writing out -----------------------------------------------------------------------------------


def _count(adjacency: Adjacency, nodes: Ints | None) -> int:
    return adjacency.source_count if nodes is None else len(nodes)


def _runs(
    adjacency: Adjacency, nodes: Ints | None, walk: Walk, guard: Guard, *, with_edges: bool
) -> Iterator[_Run]:
    """Yield the steps of all start nodes, some nodes at a time."""
    csr = _one_csr(adjacency)
    if walk.is_single and csr is not None:
        yield from _csr_runs(csr, nodes, walk, guard, with_edges=with_edges)
        return
    starts = np.arange(adjacency.source_count) if nodes is None else nodes
    for chunk in _chunks(adjacency, starts, walk):
        guard.check()
        part = starts[chunk]
        edges: Ints | None = None
        if walk.by_record:
            taken = steps(adjacency, part, guard=guard)
            rows, ends, edges = taken.rows, taken.nodes, taken.edges
        elif walk.is_single:
            found = neighbours(adjacency, part, guard=guard)
            rows, ends = found.rows, found.nodes
        else:
            found = reach(
                adjacency,
                part,
                min_hops=walk.min_hops,
                max_hops=walk.max_hops,
                loop_end=walk.loop_end,
                guard=guard,
            )
            rows, ends = found.rows, found.nodes
        yield _Run(chunk, np.bincount(rows, minlength=len(part)), ends, edges)


def _is_search(adjacency: Adjacency, walk: Walk) -> bool:
    return adjacency.same_type and walk.max_hops > 1


def _chunks(adjacency: Adjacency, starts: Ints, walk: Walk) -> Iterator[slice]:
    if walk.is_single:
        yield from chunks(adjacency, starts, rows_max=_STEPS_PER_CHUNK)
        return
    # A search may reach every node from each start.
    size = max(_PAIRS_PER_CHUNK // max(adjacency.target_count, 1), 1)
    for first in range(0, len(starts), size):
        yield slice(first, min(first + size, len(starts)))


def _one_csr(adjacency: Adjacency) -> Csr | None:
    """Return the arrays of a hop in one direction."""
    parts: tuple[object, ...] = adjacency.parts
    part = parts[0]
    return part if len(parts) == 1 and isinstance(part, Csr) else None


def _csr_runs(
    part: Csr, nodes: Ints | None, walk: Walk, guard: Guard, *, with_edges: bool
) -> Iterator[_Run]:
    first, counts = _spans(part, nodes)
    is_repeat = _repeat_mask(part) if part.has_parallel and not walk.by_record else None
    for chunk in bounded_runs(counts, total_max=_STEPS_PER_CHUNK):
        guard.check()
        places = _places(first[chunk], counts[chunk])
        lengths, ends = counts[chunk], part.neighbours[places]
        edges = part.edges[places] if with_edges else None
        if is_repeat is not None:
            kept = ~is_repeat[places]
            owners = np.repeat(np.arange(len(lengths)), lengths)
            lengths, ends = np.bincount(owners[kept], minlength=len(lengths)), ends[kept]
            edges = None if edges is None else edges[kept]
        yield _Run(chunk, lengths, ends, edges)


def _spans(part: Csr, nodes: Ints | None) -> tuple[Ints, Ints]:
    """Return where the steps of each node begin, and how many there are."""
    if nodes is None:
        return part.indptr[:-1], np.diff(part.indptr)
    first: Ints = part.indptr[nodes]
    return first, part.indptr[nodes + 1] - first


def _places(first: Ints, counts: Ints) -> slice | Ints:
    """Return the positions of runs of steps; a slice when each run follows the one before."""
    if not len(first) or bool((first[1:] == first[:-1] + counts[:-1]).all()):
        return slice(int(first[0]), int(first[-1] + counts[-1])) if len(first) else slice(0, 0)
    ends = np.cumsum(counts, dtype=np.int64)
    positions: Ints = np.repeat(first - (ends - counts), counts)
    positions += np.arange(len(positions), dtype=positions.dtype)
    return positions


def _repeats(part: Csr) -> Ints:
    """Return the positions of steps that lead to the same neighbour as the step before them."""
    same = np.flatnonzero(part.neighbours[1:] == part.neighbours[:-1]) + 1
    found: Ints = same[part.indptr[_owners(part, same)] != same]
    return found


def _repeat_mask(part: Csr) -> Mask:
    mask = np.zeros(part.edge_count, np.bool_)
    mask[_repeats(part)] = True
    return mask


def _owners(part: Csr, positions: Ints) -> Ints:
    return np.searchsorted(part.indptr, positions, side="right") - 1
