"""Hops over adjacency as array operations.

Terms. A *row* is a position in the array of start nodes that a caller gives: the same node may
occur in several rows, and every result is per row. A *step* is one edge record taken from one row.

1. No function loops over rows or edges in Python, except in chunks of bounded size.
2. A function calls its guard with the number of rows before it makes them, and at least once per
   chunk to check for cancellation. Exceptions of the guard propagate; there is nothing to clean up.
3. Results come in ascending order of row, then node (steps: row, then edge).
4. The rules are those of the language for hops: a node comes once per row, distances are shortest
   ones, the start is never reached again, except over an edge from a node to itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from omnigraph.dataclass import dataclass
from omnigraph.search.topology.csr import (
    Ints,
    Mask,
    bounded_runs,
    id_type,
    sorted_distinct,
    spread,
    spread_positions,
)
from omnigraph.search.topology.patched import Part

LoopEnd: TypeAlias = Literal["target", "source"]

_NODES_PER_VALUE_MAX: Final = 32
"""Up to this many nodes per value marking is faster than sorting: it visits every node once."""
_MARKS_MAX: Final = 1 << 25
"""Bytes of marks that a search from several nodes at once may use."""
_STEPS_AT_ONCE_MAX: Final = 1 << 20
"""Steps of a search between two calls of its guard."""


class Guard(Protocol):
    """Stops work that takes too long or grows too large, by raising."""

    def check(self) -> None:
        """Raise if the work must stop."""
        ...

    def expect(self, rows: int) -> None:
        """Raise if arrays of this many rows are too many; called before they are made."""
        ...


class Unguarded:
    """Never stops anything."""

    def check(self) -> None:
        """Do nothing."""

    def expect(self, rows: int) -> None:
        """Do nothing."""


UNGUARDED: Final = Unguarded()


@dataclass(frozen=True)
class _Range:
    """Which distances count, and whose self-loop may be the last step."""

    min_hops: int
    max_hops: int
    loop_end: LoopEnd


@dataclass(frozen=True, eq=False)
class Adjacency:
    """Which edges a hop may take: one direction, or both as one union."""

    parts: tuple[Part, ...]
    """One, or for undirected hops the outgoing and the incoming edges."""
    same_type: bool
    target_count: int

    @property
    def source_count(self) -> int:
        """How many nodes a hop can start from."""
        return self.parts[0].node_count

    @property
    def edge_count(self) -> int:
        """How many edge records there are."""
        return self.parts[0].edge_count

    @property
    def has_parallel(self) -> bool:
        """Whether a step list can hold the same node twice for one row."""
        return len(self.parts) > 1 or self.parts[0].has_parallel


@dataclass(frozen=True, eq=False)
class Reached:
    """Nodes that were reached, with the row that each was reached from."""

    rows: Ints
    nodes: Ints

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True, eq=False)
class Steps:
    """Edge records that were taken: row, node at the other end, dense id of the edge."""

    rows: Ints
    nodes: Ints
    edges: Ints

    def __len__(self) -> int:
        return len(self.rows)


# -- counting --------------------------------------------------------------------------------------


def degrees(adjacency: Adjacency, nodes: Ints | None = None) -> Ints:
    """Count edge records per start node, all nodes when `None`; an undirected self-loop is one."""
    counts = _part_degrees(adjacency.parts[0], nodes)
    for part in adjacency.parts[1:]:
        counts = counts + _part_degrees(part, nodes) - _loop_records(part, nodes)
    return counts


def has_neighbour(adjacency: Adjacency, nodes: Ints) -> Mask:
    """Return for each start node whether it has any edge."""
    found = np.zeros(len(nodes), dtype=np.bool_)
    for part in adjacency.parts:
        found |= _part_degrees(part, nodes) > 0
    return found


def _part_degrees(part: Part, nodes: Ints | None) -> Ints:
    if nodes is None or _is_everything(nodes, part.node_count):
        return part.degrees(None)
    return part.degrees(nodes)


def _is_everything(nodes: Ints, count: int) -> bool:
    """Whether these are all nodes in their order, so that no look-up is needed."""
    return len(nodes) == count and bool((nodes[1:] > nodes[:-1]).all())


def _loop_records(part: Part, nodes: Ints | None) -> NDArray[np.int64]:
    counts = np.zeros(part.node_count, dtype=np.int64)
    if len(part.loops):
        counts[part.loops] = part.pair_counts(part.loops, part.loops)
    return counts if nodes is None else counts[nodes]


# -- single hops -----------------------------------------------------------------------------------


def chunks(adjacency: Adjacency, nodes: Ints, *, rows_max: int) -> Iterator[slice]:
    """Cut start nodes into runs whose steps number at most `rows_max`, one node at least."""
    return bounded_runs(np.maximum(degrees(adjacency, nodes), 1), total_max=rows_max)


def steps(adjacency: Adjacency, nodes: Ints, *, guard: Guard = UNGUARDED) -> Steps:
    """Take every edge record of every start node: what a bound edge variable matches."""
    guard.check()
    guard.expect(int(degrees(adjacency, nodes).sum()))
    taken = [
        _part_steps(part, nodes, skip_loops=number > 0)
        for number, part in enumerate(adjacency.parts)
    ]
    rows, ends, edges = (np.concatenate(arrays) for arrays in zip(*taken, strict=True))
    order = _row_order(rows, edges)
    return Steps(rows[order], ends[order], edges[order])


def neighbours(adjacency: Adjacency, nodes: Ints, *, guard: Guard = UNGUARDED) -> Reached:
    """Reach the distinct neighbours of every start node: an unbound hop of length one."""
    guard.check()
    guard.expect(int(sum(int(_part_degrees(part, nodes).sum()) for part in adjacency.parts)))
    if len(adjacency.parts) == 1:
        part = adjacency.parts[0]
        rows, positions = _positions(part, nodes)
        ends = part.ends_at(positions)
        if part.has_parallel:
            # Equal neighbours of one row are next to each other.
            first = np.ones(len(rows), dtype=np.bool_)
            np.logical_or(rows[1:] != rows[:-1], ends[1:] != ends[:-1], out=first[1:])
            rows, ends = rows[first], ends[first]
        return Reached(rows, ends)
    width = adjacency.target_count
    keys = np.concatenate([_pair_keys(part, nodes, width) for part in adjacency.parts])
    return _unpacked(_distinct(keys, len(nodes) * width), width)


def neighbour_set(adjacency: Adjacency, nodes: Ints, *, guard: Guard = UNGUARDED) -> Ints:
    """Return the distinct neighbours of a set of nodes, ascending."""
    guard.check()
    found = []
    for part in adjacency.parts:
        guard.expect(int(_part_degrees(part, nodes).sum()))
        found.append(_part_ends(part, nodes))
    ends = found[0] if len(found) == 1 else np.concatenate(found)
    if len(nodes) == 1 and not adjacency.has_parallel:
        return ends
    return _distinct(ends, adjacency.target_count)


def has_edge(adjacency: Adjacency, sources: Ints, targets: Ints) -> Mask:
    """Return for each pair whether an edge leads from the source to the target."""
    found = np.zeros(len(sources), dtype=np.bool_)
    for part in adjacency.parts:
        found |= part.pair_counts(sources, targets) > 0
    return found


def _part_steps(part: Part, nodes: Ints, *, skip_loops: bool) -> tuple[Ints, Ints, Ints]:
    rows, positions = _positions(part, nodes)
    ends, edges = part.ends_at(positions), part.edges_at(positions)
    if skip_loops and len(part.loops):
        other = ends != nodes[rows]
        rows, ends, edges = rows[other], ends[other], edges[other]
    return rows, ends, edges


def _part_ends(part: Part, nodes: Ints) -> Ints:
    if len(nodes) == 1:
        return part.ends_of(int(nodes[0]))
    return part.ends_at(spread_positions(*part.spans(nodes)))


def _positions(part: Part, nodes: Ints) -> tuple[Ints, Ints]:
    return spread(*part.spans(nodes))


def _row_order(rows: Ints, edges: Ints) -> Ints:
    # Edges without a live end are numbered too: the largest number may exceed the count of steps.
    keys = rows.astype(np.int64) * (int(edges.max(initial=0)) + 1) + edges
    return np.argsort(keys, kind="stable")


def _pair_keys(part: Part, nodes: Ints, width: int) -> NDArray[np.int64]:
    rows, positions = _positions(part, nodes)
    keys = rows.astype(np.int64)
    keys *= width
    keys += part.ends_at(positions)
    return keys


def _unpacked(keys: Ints, width: int) -> Reached:
    rows, nodes = np.divmod(keys, max(width, 1))
    return Reached(rows, nodes.astype(id_type(width), copy=False))


def _distinct(values: Ints, bound: int) -> Ints:
    """Return the distinct values, all below `bound`, ascending."""
    if bound > min(len(values) * _NODES_PER_VALUE_MAX, _MARKS_MAX):
        return sorted_distinct(values)
    marks = np.zeros(bound, dtype=np.bool_)
    marks[values] = True
    return np.flatnonzero(marks).astype(values.dtype, copy=False)


# -- several hops ----------------------------------------------------------------------------------


def reach(
    adjacency: Adjacency,
    nodes: Ints,
    *,
    min_hops: int,
    max_hops: int,
    loop_end: LoopEnd = "target",
    guard: Guard = UNGUARDED,
) -> Reached:
    """Reach every node whose distance from the row's start is `min_hops..max_hops`.

    A self-loop may be the last step: it adds the nodes at distance `min_hops - 1` that have one,
    or, with `loop_end="source"`, all nodes at that distance if the row's start has one. The
    latter is for a hop that is walked against the direction in which it was written.
    """
    if not adjacency.same_type:
        if min_hops > 1:
            return Reached(np.empty(0, np.int64), np.empty(0, id_type(adjacency.target_count)))
        return neighbours(adjacency, nodes, guard=guard)
    if max_hops == 1:
        return neighbours(adjacency, nodes, guard=guard)
    starts, row_of = np.unique(nodes, return_inverse=True)
    found = _reach_starts(adjacency, starts, _Range(min_hops, max_hops, loop_end), guard)
    if len(starts) == len(nodes) and np.array_equal(starts, nodes):
        return found
    return _per_row(found, row_of, len(starts), guard)


def reach_levels(
    adjacency: Adjacency, nodes: Ints, *, max_hops: int, guard: Guard = UNGUARDED
) -> Iterator[Ints]:
    """Yield the nodes at distance 0, 1, … from a set of nodes of one type; each node once."""
    seen = np.zeros(adjacency.source_count, dtype=np.bool_)
    frontier = sorted_distinct(nodes)
    seen[frontier] = True
    yield frontier
    for _ in range(max_hops):
        guard.check()
        ends = [_part_ends(part, frontier) for part in adjacency.parts]
        found = ends[0] if len(ends) == 1 else np.concatenate(ends)
        found = found[~seen[found]]
        if not len(found):
            return
        frontier = _distinct(found, adjacency.target_count)
        seen[frontier] = True
        yield frontier


def reach_set(
    adjacency: Adjacency,
    nodes: Ints,
    *,
    min_hops: int,
    max_hops: int,
    loop_end: LoopEnd = "target",
    guard: Guard = UNGUARDED,
) -> Ints:
    """Return the distinct nodes that `reach` finds from any of the start nodes, ascending."""
    if len(nodes) == 1 and adjacency.same_type and max_hops > 1:
        levels = reach_levels(adjacency, nodes, max_hops=max_hops, guard=guard)
        kept = _kept_levels(adjacency, levels, nodes[0], min_hops, loop_end)
        none = np.empty(0, id_type(adjacency.target_count))
        return _ascending_union([none, *kept], adjacency.target_count)
    found = reach(
        adjacency, nodes, min_hops=min_hops, max_hops=max_hops, loop_end=loop_end, guard=guard
    )
    return _distinct(found.nodes, adjacency.target_count)


def reach_count(
    adjacency: Adjacency,
    start: int,
    *,
    min_hops: int,
    max_hops: int,
    loop_end: LoopEnd = "target",
    guard: Guard = UNGUARDED,
) -> int:
    """Count the nodes that `reach` finds from one node of a type that leads to itself."""
    levels = reach_levels(adjacency, np.array([start]), max_hops=max_hops, guard=guard)
    return sum(map(len, _kept_levels(adjacency, levels, start, min_hops, loop_end)))


def _kept_levels(
    adjacency: Adjacency, levels: Iterator[Ints], start: int, min_hops: int, loop_end: LoopEnd
) -> Iterator[Ints]:
    """Yield the levels from `min_hops` on, and before them what a self-loop adds."""
    for distance, level in enumerate(levels):
        if distance >= min_hops:
            yield level
        elif distance == min_hops - 1:
            yield _looped(adjacency, level, level, np.full(len(level), start), loop_end)


def _ascending_union(parts: list[Ints], bound: int) -> Ints:
    """Return the values of parts that have none in common, ascending."""
    if bound > min(sum(map(len, parts)) * _NODES_PER_VALUE_MAX, _MARKS_MAX):
        return np.sort(np.concatenate(parts))
    marks = np.zeros(bound, dtype=np.bool_)
    for part in parts:
        marks[part] = True
    return np.flatnonzero(marks).astype(parts[0].dtype, copy=False)


def _looped(
    adjacency: Adjacency, values: Ints, nodes: Ints, starts: Ints, loop_end: LoopEnd
) -> Ints:
    """Keep the values whose node, or whose start, has an edge to itself."""
    loops = adjacency.parts[0].loops
    if not len(loops):
        return values[:0]
    return values[np.isin(nodes if loop_end == "target" else starts, loops)]


def _reach_starts(
    adjacency: Adjacency,
    starts: Ints,
    hops: _Range,
    guard: Guard,
) -> Reached:
    width = adjacency.target_count
    at_once = max(_MARKS_MAX // max(width, 1), 1)
    marks = np.zeros(min(at_once, len(starts)) * width, dtype=np.bool_)
    rows: list[Ints] = []
    ends: list[Ints] = []
    total = 0
    for first in range(0, len(starts), at_once):
        part = starts[first : first + at_once]
        keys = _search(adjacency, part, marks, hops, guard)
        total += len(keys)
        guard.expect(total)
        found = _unpacked(keys, width)
        rows.append(found.rows + first)
        ends.append(found.nodes)
    if not rows:
        return Reached(np.empty(0, np.int64), np.empty(0, id_type(width)))
    return Reached(np.concatenate(rows), np.concatenate(ends))


def _search(
    adjacency: Adjacency,
    starts: Ints,
    marks: Mask,
    hops: _Range,
    guard: Guard,
) -> Ints:
    """Search breadth first from some nodes at once; a key is `row * node count + node`.

    `marks` must be all false, and is so again afterwards.
    """
    width = adjacency.target_count
    frontier = np.arange(len(starts), dtype=np.int64) * width + starts
    levels = [frontier]
    marks[frontier] = True
    try:
        for _ in range(hops.max_hops):
            frontier = _next_level(adjacency, frontier, marks, len(starts) * width, guard)
            if not len(frontier):
                break
            levels.append(frontier)
    finally:
        for level in levels:
            marks[level] = False
    kept = levels[hops.min_hops :]
    if hops.min_hops - 1 < len(levels):
        edge = levels[hops.min_hops - 1]
        rows, nodes = np.divmod(edge, width)
        kept.append(_looped(adjacency, edge, nodes, starts[rows], hops.loop_end))
    return _ascending_union(kept, len(starts) * width) if kept else frontier[:0]


def _next_level(
    adjacency: Adjacency, frontier: Ints, marks: Mask, bound: int, guard: Guard
) -> Ints:
    """Return the keys one step further that have no mark, ascending, and mark them."""
    width = adjacency.target_count
    rows, nodes = np.divmod(frontier, width)
    level: list[Ints] = []
    # In chunks: a level around a hub may hold a step from every row to every node.
    for piece in chunks(adjacency, nodes, rows_max=_STEPS_AT_ONCE_MAX):
        keys = _next_keys(adjacency, rows[piece], nodes[piece], guard)
        keys = keys[~marks[keys]]
        if len(keys):
            level.append(_distinct(keys, bound))
            marks[level[-1]] = True
    if not level:
        return frontier[:0]
    return level[0] if len(level) == 1 else np.sort(np.concatenate(level))


def _next_keys(adjacency: Adjacency, rows: Ints, nodes: Ints, guard: Guard) -> NDArray[np.int64]:
    guard.check()
    width = adjacency.target_count
    found = []
    for part in adjacency.parts:
        guard.expect(int(_part_degrees(part, nodes).sum()))
        owners, positions = _positions(part, nodes)
        found.append(rows[owners] * width + part.ends_at(positions))
    return found[0] if len(found) == 1 else np.concatenate(found)


def _per_row(found: Reached, row_of: Ints, start_count: int, guard: Guard) -> Reached:
    """Copy the nodes of each start to every row that starts there."""
    counts = np.bincount(found.rows, minlength=start_count)
    firsts = np.cumsum(counts) - counts
    guard.expect(int(counts[row_of].sum()))
    rows, positions = spread(firsts[row_of], counts[row_of])
    return Reached(rows, found.nodes[positions])
