"""Following the edges of one type from many nodes, over one of two access paths.

1. Both paths answer the same questions with the same rows; only the cost differs. *Indexed* asks
   the edge dataset for `src`/`dst` in a set of ids, once per hop. *Topology* works on adjacency
   over dense numbers that room 9 keeps.
2. Nodes and edges are stable row ids everywhere; start nodes may repeat, and every answer carries
   the position of the start node that it belongs to, ascending.
3. The rules of hops are those of `omnigraph.search.traverse`: a node comes once per start,
   distances are shortest ones, and a self-loop may be the last step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.query.plan.plan import Direction, Expand
from omnigraph.read.columns import ID, SOURCE, TARGET
from omnigraph.read.limits import Guard
from omnigraph.read.rows import (
    NULL,
    Mask,
    Positions,
    RowIds,
    pair_keys,
    repeats,
    slices,
    unpack_keys,
)
from omnigraph.read.tables import LOOKUP_MAX, TableReader
from omnigraph.search import traverse
from omnigraph.search.numbering import Numbering
from omnigraph.search.topology import Topology
from omnigraph.store.filters import OneOf
from omnigraph.store.records import ROW_ID, ScanRequest

AccessPath: TypeAlias = Literal["indexed", "topology"]
LoopEnd: TypeAlias = Literal["target", "source"]


@dataclass(frozen=True, eq=False)
class Pairs:
    """What was reached: the position of a start node, and a node."""

    starts: Positions
    nodes: RowIds


@dataclass(frozen=True, eq=False)
class EdgeSteps:
    """Edge records: the position of a start node, the node at the other end, the edge."""

    starts: Positions
    nodes: RowIds
    edges: RowIds


class Hops(Protocol):
    """The edges of one type in one direction."""

    @property
    def path(self) -> AccessPath:
        """Which access path this is."""
        ...

    def reach(self, nodes: RowIds, *, min_hops: int, max_hops: int, loop_end: LoopEnd) -> Pairs:
        """Return the distinct nodes at the wanted distances of each start."""
        ...

    def reach_set(
        self, nodes: RowIds, *, min_hops: int, max_hops: int, loop_end: LoopEnd
    ) -> RowIds:
        """Return the distinct nodes that any start reaches, ascending."""
        ...

    def steps(self, nodes: RowIds) -> EdgeSteps:
        """Return every edge record of each start; by start, then edge."""
        ...

    def has_neighbour(self, nodes: RowIds) -> Mask:
        """Say of each start whether it has any edge."""
        ...


class AdjacencySource(Protocol):
    """Chooses the access path of each expansion."""

    def path(self, expand: Expand, frontier: int) -> AccessPath:
        """Say which access path an expansion from `frontier` rows would take."""
        ...

    def hops(self, expand: Expand, frontier: int) -> Hops:
        """Return the edges that an expansion from `frontier` rows follows."""
        ...


# -- topology -----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class TopologyHops:
    """Hops over adjacency in memory."""

    topology: Topology
    direction: Direction
    guard: Guard
    path: AccessPath = "topology"

    def reach(self, nodes: RowIds, *, min_hops: int, max_hops: int, loop_end: LoopEnd) -> Pairs:
        """Return the distinct nodes at the wanted distances of each start."""
        sources, targets = self.topology.ends(self.direction)
        found = traverse.reach(
            self.topology.adjacency(self.direction),
            sources.positions(nodes),
            min_hops=min_hops,
            max_hops=max_hops,
            loop_end=loop_end,
            guard=self.guard,
        )
        return Pairs(found.rows.astype(np.intp), _row_ids(targets, found.nodes))

    def reach_set(
        self, nodes: RowIds, *, min_hops: int, max_hops: int, loop_end: LoopEnd
    ) -> RowIds:
        """Return the distinct nodes that any start reaches, ascending."""
        sources, targets = self.topology.ends(self.direction)
        adjacency = self.topology.adjacency(self.direction)
        starts = sources.positions(nodes)
        if max_hops == 1 and min_hops == 1:
            found = traverse.neighbour_set(adjacency, starts, guard=self.guard)
        else:
            found = traverse.reach_set(
                adjacency,
                starts,
                min_hops=min_hops,
                max_hops=max_hops,
                loop_end=loop_end,
                guard=self.guard,
            )
        return _row_ids(targets, found)

    def steps(self, nodes: RowIds) -> EdgeSteps:
        """Return every edge record of each start."""
        sources, targets = self.topology.ends(self.direction)
        found = traverse.steps(
            self.topology.adjacency(self.direction),
            sources.positions(nodes),
            guard=self.guard,
        )
        return EdgeSteps(
            found.rows.astype(np.intp),
            _row_ids(targets, found.nodes),
            self.topology.edge_row_ids(found.edges).astype(np.int64),
        )

    def has_neighbour(self, nodes: RowIds) -> Mask:
        """Say of each start whether it has any edge."""
        sources, _ = self.topology.ends(self.direction)
        adjacency = self.topology.adjacency(self.direction)
        return traverse.has_neighbour(adjacency, sources.positions(nodes))

    # -- folding: only where adjacency is at hand ------------------------------------------------

    @property
    def has_single_steps(self) -> bool:
        """Whether a node never leads to the same neighbour twice, so that steps are neighbours."""
        return not self.topology.adjacency(self.direction).has_parallel

    @property
    def target_count(self) -> int:
        """How many nodes can be reached."""
        return self.topology.adjacency(self.direction).target_count

    def counts(self, nodes: RowIds, expand: Expand) -> npt.NDArray[np.int64]:
        """Count the nodes that each start reaches."""
        sources, _ = self.topology.ends(self.direction)
        adjacency = self.topology.adjacency(self.direction)
        starts = sources.positions(nodes)
        if expand.max == 1 or not adjacency.same_type:
            return traverse.degrees(adjacency, starts).astype(np.int64)
        found = [
            traverse.reach_count(
                adjacency,
                start,
                min_hops=expand.min,
                max_hops=expand.max,
                loop_end="source" if expand.is_reversed else "target",
                guard=self.guard,
            )
            for start in starts
        ]
        return np.array(found, np.int64)

    def sums(
        self, nodes: RowIds, weights: npt.NDArray[np.signedinteger[Any]] | Mask
    ) -> npt.NDArray[np.int64]:
        """Add up, for each start, the weights of its neighbours; `weights` is by dense id."""
        sources, _ = self.topology.ends(self.direction)
        return traverse.weight_sums(
            self.topology.adjacency(self.direction),
            sources.positions(nodes),
            weights,
            guard=self.guard,
        )


def _row_ids(numbering: Numbering, dense: npt.NDArray[np.signedinteger]) -> RowIds:
    if numbering.listed is None:
        wide = dense.astype(np.int64, copy=False)
        return wide + numbering.first if numbering.first else wide
    return numbering.row_ids(dense).astype(np.int64)


# -- indexed ------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class IndexedHops:
    """Hops that ask the edge dataset for the edges of a set of nodes."""

    tables: TableReader
    guard: Guard
    edge_key: str
    source_key: str
    target_key: str
    direction: Direction
    path: AccessPath = "indexed"

    def reach(self, nodes: RowIds, *, min_hops: int, max_hops: int, loop_end: LoopEnd) -> Pairs:
        """Return the distinct nodes at the wanted distances of each start."""
        distinct, kinds = np.unique(nodes, return_inverse=True)
        if self.source_key != self.target_key:
            found = self._neighbours(distinct) if min_hops == 1 else _NO_PAIRS
        else:
            found = self._search(distinct, min_hops, max_hops, loop_end)
        return self._per_start(found, kinds, len(distinct))

    def reach_set(
        self, nodes: RowIds, *, min_hops: int, max_hops: int, loop_end: LoopEnd
    ) -> RowIds:
        """Return the distinct nodes that any start reaches, ascending."""
        found = self.reach(nodes, min_hops=min_hops, max_hops=max_hops, loop_end=loop_end)
        return np.unique(found.nodes)

    def steps(self, nodes: RowIds) -> EdgeSteps:
        """Return every edge record of each start."""
        distinct, kinds = np.unique(nodes, return_inverse=True)
        found = self._edges(distinct, with_edges=True)
        order = np.lexsort((found.edges, found.starts))
        starts, picks = _spread(found.starts[order], kinds, len(distinct), self.guard)
        return EdgeSteps(starts, found.nodes[order][picks], found.edges[order][picks])

    def has_neighbour(self, nodes: RowIds) -> Mask:
        """Say of each start whether it has any edge."""
        distinct, kinds = np.unique(nodes, return_inverse=True)
        has_edge = np.zeros(len(distinct), np.bool_)
        has_edge[self._edges(distinct, with_edges=False).starts] = True
        return has_edge[kinds]

    def _neighbours(self, distinct: RowIds) -> Pairs:
        found = self._edges(distinct, with_edges=False)
        return _pairs(np.unique(pair_keys(found.starts, found.nodes)))

    def _per_start(self, found: Pairs, kinds: Positions, count: int) -> Pairs:
        starts, picks = _spread(found.starts, kinds, count, self.guard)
        return Pairs(starts, found.nodes[picks])

    def _search(self, starts: RowIds, min_hops: int, max_hops: int, loop_end: LoopEnd) -> Pairs:
        """Search breadth first from all starts at once, one scan per level."""
        frontier = pair_keys(np.arange(len(starts), dtype=np.intp), starts)
        seen = np.sort(frontier)
        kept: list[RowIds] = []
        start_loops = np.zeros(len(starts), np.bool_)
        for hop in range(1, max_hops + 1):
            reached, is_loop = self._next(frontier)
            if hop == 1:
                start_loops[unpack_keys(reached[is_loop])[0]] = True
            if hop == min_hops:
                # A self-loop of the node, or of the start, stands for one more step.
                by_start = frontier[start_loops[unpack_keys(frontier)[0]]]
                kept.append(np.unique(reached[is_loop]) if loop_end == "target" else by_start)
            frontier = np.setdiff1d(reached, seen)
            if not len(frontier):
                break
            seen = np.union1d(seen, frontier)
            if hop >= min_hops:
                kept.append(frontier)
        return _pairs(np.sort(np.concatenate(kept)) if kept else frontier[:0])

    def _next(self, frontier: RowIds) -> tuple[RowIds, Mask]:
        """Take one step from each pair; say which steps stay where they are."""
        self.guard.check()
        pairs = _pairs(frontier)
        distinct, kinds = np.unique(pairs.nodes, return_inverse=True)
        found = self._neighbours(distinct)
        rows, picks = _spread(found.starts, kinds, len(distinct), self.guard)
        nodes = found.nodes[picks]
        return pair_keys(pairs.starts[rows], nodes), nodes == pairs.nodes[rows]

    def _edges(self, distinct: RowIds, *, with_edges: bool) -> EdgeSteps:
        parts: list[EdgeSteps] = []
        for first in range(0, len(distinct), LOOKUP_MAX):
            chunk = distinct[first : first + LOOKUP_MAX]
            if self.direction in ("out", "both"):
                parts.append(self._by_column(chunk, first, SOURCE, TARGET, with_edges))
            if self.direction in ("in", "both"):
                found = self._by_column(chunk, first, TARGET, SOURCE, with_edges)
                # An edge from a node to itself is one record, whichever way it is read.
                parts.append(_without_loops(found, distinct) if self.direction == "both" else found)
        if not parts:
            return _NO_STEPS
        return EdgeSteps(
            np.concatenate([part.starts for part in parts]),
            np.concatenate([part.nodes for part in parts]),
            np.concatenate([part.edges for part in parts]),
        )

    def _by_column(
        self, nodes: RowIds, first: int, near: str, far: str, with_edges: bool
    ) -> EdgeSteps:
        ids = self.tables.fetch(self.source_key, nodes, [ID])[ID]
        request = ScanRequest(
            columns=(near, far),
            row_filter=OneOf(near, tuple(ids.to_pylist())),
            with_row_id=with_edges,
        )
        table = self.tables.scan(self.edge_key, request)
        starts = _places(table[near], ids)
        ends = self.tables.row_ids_of(self.target_key, _whole(table[far]))
        edges = table[ROW_ID].to_numpy().astype(np.int64) if with_edges else ends
        is_live = ends != NULL
        return EdgeSteps(starts[is_live] + first, ends[is_live], edges[is_live])


_NO_PAIRS = Pairs(np.empty(0, np.intp), np.empty(0, np.int64))
_NO_STEPS = EdgeSteps(np.empty(0, np.intp), np.empty(0, np.int64), np.empty(0, np.int64))


def _places(values: pa.ChunkedArray, among: pa.Array) -> Positions:
    found = pc.index_in(values, value_set=among).to_numpy(zero_copy_only=False)
    return np.asarray(found, np.intp)


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks()


def _without_loops(found: EdgeSteps, nodes: RowIds) -> EdgeSteps:
    other = nodes[found.starts] != found.nodes
    return EdgeSteps(found.starts[other], found.nodes[other], found.edges[other])


def _spread(
    owners: Positions, kinds: Positions, count: int, guard: Guard
) -> tuple[Positions, Positions]:
    """Repeat what each kind of start has, in ascending order, for every start of that kind."""
    counts = np.bincount(owners, minlength=count)
    firsts = np.cumsum(counts) - counts
    wanted = counts[kinds]
    guard.expect(int(wanted.sum()))
    return repeats(wanted), slices(firsts[kinds], wanted)


def _pairs(keys: RowIds) -> Pairs:
    return Pairs(*unpack_keys(keys))
