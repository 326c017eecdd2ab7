"""Makes the topology of another state as an overlay: the arrays of a base, and what differs.

The result answers as a rebuild would, or is `None`: then something differs that an overlay cannot
hold, and the topology is extended or built. Its cost follows from the rows that differ and from the
degrees of their ends, not from the size of the base.

1. Rows that differ are found by `omnigraph.search.table_delta`. Nodes and edges keep their dense
   ids: new ones follow behind those of the base, gone ones leave a gap.
2. A node that was rewritten keeps its row id and its `id`; the overlay does not change. Between
   lineages a row id may stand for two nodes, so there their ids are compared.
3. The ends of a removed edge are found where they are known at no cost: in the steps of a node that
   is gone, or in the edge's new row. Else its row is read from the version of the base. That the
   base has a step from the one end to the other is checked; if it has not, all edges are searched.
4. A node that is gone must have lost all of its edges. Otherwise some are dangling, and only a
   rebuild counts these.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.dataclass import dataclass
from omnigraph.errors import OmnigraphError
from omnigraph.search.table_delta import TableDelta, TableDeltas
from omnigraph.search.table_state import TableState
from omnigraph.search.topology.build import TopologyHandles
from omnigraph.search.topology.csr import (
    Csr,
    Ints,
    RowIds,
    id_type,
    renumbered_csr,
    spread,
    spread_positions,
)
from omnigraph.search.topology.patched import EdgeList, Part, Patch, find_steps, patched_csr
from omnigraph.search.topology.row_numbers import Numbering, numbering_of
from omnigraph.search.topology.topology import (
    AnyTopology,
    OverlaidTopology,
    Topology,
    TopologyStates,
)
from omnigraph.store.datasets import DatasetHandle
from omnigraph.store.records import DatasetVersion

FindNodes: TypeAlias = Callable[[pa.Array], npt.NDArray[np.int64]]
"""Returns the row id of the live node of each id, -1 where there is none."""
OpenVersion: TypeAlias = Callable[[DatasetVersion], DatasetHandle]


@dataclass(frozen=True)
class Ends:
    """Looks up the nodes at both ends of edges, in the state that is wanted."""

    source: FindNodes
    target: FindNodes


@dataclass(frozen=True, eq=False)
class _Nodes:
    """The nodes at one end: their numbering, and what differs from the base."""

    numbering: Numbering
    gone: Ints
    touched: Ints
    """Dense ids of all nodes that the base has not, and of those that are gone."""


@dataclass(frozen=True, eq=False)
class _Edges:
    """The edges that differ."""

    numbering: Numbering
    removed: EdgeList
    added: EdgeList
    dangling: int


@dataclass(frozen=True, eq=False)
class Overlays:
    """Makes overlays of the topologies of one graph. Safe to share between threads."""

    deltas: TableDeltas
    open_version: OpenVersion

    def over(
        self, base: AnyTopology, handles: TopologyHandles, states: TopologyStates, ends: Ends
    ) -> OverlaidTopology | None:
        """Return the topology of `states` over a base; None when there can be no overlay.

        Over an overlay it is one over the same base, with the changes of both.
        """
        if base.states.same_type != states.same_type:
            return None
        return _Overlay(self.deltas, self.open_version, base, handles, states, ends).make()


@dataclass(frozen=True, eq=False)
class _Overlay:
    """One overlay on its way."""

    deltas: TableDeltas
    open_version: OpenVersion
    base: AnyTopology
    handles: TopologyHandles
    states: TopologyStates
    ends: Ends

    def make(self) -> OverlaidTopology | None:
        base, handles, states = self.base, self.handles, self.states
        edge = self._delta(base.states.edge, states.edge, handles.edge)
        source = self._delta(base.states.source, states.source, handles.source)
        target = source
        if not states.same_type:
            target = self._delta(base.states.target, states.target, handles.target)
        if edge is None or source is None or target is None:
            return None
        sources = self._nodes(base.sources, source, handles.source)
        targets = sources
        if not states.same_type:
            targets = self._nodes(base.targets, target, handles.target)
        if sources is None or targets is None:
            return None
        if base.dangling and (len(edge.removed) or _differ(sources) or _differ(targets)):
            return None
        edges = self._edges(edge, sources, targets)
        if edges is None:
            return None
        deltas = (edge, source) if states.same_type else (edge, source, target)
        return self._overlaid(edges, sources, targets, deltas)

    def _delta(
        self, base: TableState, state: TableState, handle: DatasetHandle
    ) -> TableDelta | None:
        return self.deltas.between(base, state, handle, self.open_version)

    # -- nodes -------------------------------------------------------------------------------------

    def _nodes(self, base: Numbering, delta: TableDelta, handle: DatasetHandle) -> _Nodes | None:
        rewritten = np.intersect1d(delta.removed, delta.added, assume_unique=True)
        is_foreign = delta.base.lineage != delta.state.lineage
        if is_foreign and len(rewritten) and not self._same_ids(delta, rewritten, handle):
            return None
        added = np.setdiff1d(delta.added, rewritten, assume_unique=True)
        gone = np.setdiff1d(delta.removed, rewritten, assume_unique=True)
        numbering = base.changed(added, gone)
        if numbering is None:
            return None
        lost = np.sort(base.dense(gone))
        touched = np.concatenate([lost, np.arange(base.count, numbering.count)])
        return _Nodes(numbering, lost, touched)

    def _same_ids(self, delta: TableDelta, rewritten: RowIds, handle: DatasetHandle) -> bool:
        try:
            earlier = self.open_version(delta.base.at).take(rewritten.tolist(), ["id"])
        except OmnigraphError:
            return False
        now = handle.take(rewritten.tolist(), ["id"])
        return bool(earlier["id"].equals(now["id"]))

    # -- edges -------------------------------------------------------------------------------------

    def _edges(self, delta: TableDelta, sources: _Nodes, targets: _Nodes) -> _Edges | None:
        base = self.base
        rewritten = np.intersect1d(delta.removed, delta.added, assume_unique=True)
        numbering = base.edges.changed(
            np.setdiff1d(delta.added, rewritten, assume_unique=True),
            np.setdiff1d(delta.removed, rewritten, assume_unique=True),
        )
        if numbering is None:
            return None
        added = self._added(delta, numbering, sources, targets)
        has_ends = (added.starts >= 0) & (added.ends >= 0)
        dangling = base.dangling + len(has_ends) - int(has_ends.sum())
        added = added.where(has_ends)
        lost = base.edges.dense(delta.removed)
        same = find_steps(base.out, added.starts, added.ends, added.edges) >= 0
        if same.any():
            # Rewritten, and still between the same nodes.
            lost = np.setdiff1d(lost, added.edges[same], assume_unique=True)
            added = added.where(~same)
        removed = self._removed(lost, sources, targets)
        if removed is None:
            return None
        if _keeps_steps(base.out, sources.gone, removed.starts):
            return None
        if _keeps_steps(base.incoming, targets.gone, removed.ends):
            return None
        return _Edges(numbering, removed, added, dangling)

    def _added(
        self, delta: TableDelta, numbering: Numbering, sources: _Nodes, targets: _Nodes
    ) -> EdgeList:
        columns = self.deltas.columns(delta, self.handles.edge, ("src", "dst"))
        starts = _dense(sources.numbering, self.ends.source, columns["src"])
        stops = _dense(targets.numbering, self.ends.target, columns["dst"])
        return EdgeList(starts, stops, numbering.dense(delta.added))

    def _removed(self, lost: Ints, sources: _Nodes, targets: _Nodes) -> EdgeList | None:
        """Return the ends of removed edges, as dense ids of the base; None if they are unknown."""
        out, incoming = self.base.out, self.base.incoming
        parts = [_steps(out, sources.gone), _steps(incoming, targets.gone).turned()]
        parts = [part.where(np.isin(part.edges, lost)) for part in parts]
        rest = np.setdiff1d(lost, np.concatenate([part.edges for part in parts]))
        if len(rest):
            found = self._stored(rest) or _searched(out, rest)
            if found is None:
                return None
            parts.append(found)
        starts, stops, edges = (
            np.concatenate(arrays)
            for arrays in zip(*((p.starts, p.ends, p.edges) for p in parts), strict=True)
        )
        edges, first = np.unique(edges, return_index=True)
        return EdgeList(starts[first], stops[first], edges)

    def _stored(self, lost: Ints) -> EdgeList | None:
        """Read removed edges from the version of the base; None if that does not find them."""
        base = self.base
        try:
            handle = self.open_version(base.states.edge.at)
            table = handle.take(base.edges.row_ids(lost).tolist(), ["src", "dst"])
        except OmnigraphError:
            return None
        if table.num_rows != len(lost):
            return None
        starts = _dense(base.sources, self.ends.source, table["src"].combine_chunks())
        stops = _dense(base.targets, self.ends.target, table["dst"].combine_chunks())
        if (find_steps(base.out, starts, stops, lost) < 0).any():
            return None
        return EdgeList(starts, stops, lost)

    # -- both --------------------------------------------------------------------------------------

    def _overlaid(
        self, edges: _Edges, sources: _Nodes, targets: _Nodes, deltas: tuple[TableDelta, ...]
    ) -> OverlaidTopology:
        is_chain = self.states.same_type
        removed, added = edges.removed, edges.added
        out = patched_csr(
            self.base.out,
            Patch(removed, added, sources.touched),
            node_count=sources.numbering.count,
            same_type=is_chain,
        )
        incoming = patched_csr(
            self.base.incoming,
            Patch(removed.turned(), added.turned(), targets.touched),
            node_count=targets.numbering.count,
            same_type=is_chain,
        )
        return OverlaidTopology(
            self.states,
            sources.numbering,
            targets.numbering,
            edges.numbering,
            self.base if isinstance(self.base, Topology) else self.base.base,
            out,
            incoming,
            edges.dangling,
            changes=_changes(self.base) + sum(delta.rows for delta in deltas),
            is_rewritten=any(delta.is_rewritten for delta in deltas),
        )


def _changes(base: AnyTopology) -> int:
    return 0 if isinstance(base, Topology) else base.changes


def _differ(nodes: _Nodes) -> bool:
    return len(nodes.touched) > 0


def _dense(numbering: Numbering, find: FindNodes, ids: pa.Array) -> Ints:
    if not len(ids):
        return np.empty(0, np.int32)
    found = find(ids)
    dense = numbering.dense(found.astype(np.uint64))
    return np.where(found >= 0, dense, -1).astype(dense.dtype)


def _steps(part: Part, nodes: Ints) -> EdgeList:
    owners, positions = spread(*part.spans(nodes))
    return EdgeList(nodes[owners], part.ends_at(positions), part.edges_at(positions))


def _searched(out: Part, lost: Ints) -> EdgeList | None:
    """Find edges among all; None where there are changes already."""
    if not isinstance(out, Csr):
        return None
    positions = np.flatnonzero(np.isin(out.edges, lost))
    starts = np.searchsorted(out.indptr, positions, side="right") - 1
    return EdgeList(starts, out.neighbours[positions], out.edges[positions])


def _keeps_steps(part: Part, gone: Ints, lost: Ints) -> bool:
    """Whether a node that is gone has a step that is not."""
    if not len(gone):
        return False
    counts = part.degrees(gone)
    places = np.searchsorted(gone, lost)
    places[places == len(gone)] = 0
    taken = np.bincount(places[gone[places] == lost], minlength=len(gone))
    return bool((counts != taken).any())


# -- folding ---------------------------------------------------------------------------------------


def fold_overlay(overlaid: OverlaidTopology) -> Topology:
    """Return the topology of an overlay as one with arrays of its own and without gaps."""
    sources, source_map = _closed(overlaid.sources)
    targets, target_map = sources, source_map
    if overlaid.targets is not overlaid.sources:
        targets, target_map = _closed(overlaid.targets)
    edges, edge_map = _closed(overlaid.edges)
    out, incoming = _whole(overlaid.out), _whole(overlaid.incoming)
    return Topology(
        overlaid.states,
        sources,
        targets,
        edges,
        renumbered_csr(
            out,
            node_map=source_map,
            end_map=target_map,
            edge_map=edge_map,
            node_count=sources.count,
        ),
        renumbered_csr(
            incoming,
            node_map=target_map,
            end_map=source_map,
            edge_map=edge_map,
            node_count=targets.count,
        ),
        overlaid.dangling,
    )


def _closed(numbering: Numbering) -> tuple[Numbering, Ints | None]:
    """Return a numbering without gaps, and the new dense id of every old one if some change."""
    if numbering.is_plain:
        return numbering, None
    plain = numbering_of(numbering.row_ids())
    if not len(numbering.gone):
        return plain, None
    is_live = np.ones(numbering.count, np.bool_)
    is_live[numbering.gone] = False
    return plain, np.where(is_live, np.cumsum(is_live) - 1, 0).astype(id_type(plain.count))


def _whole(part: Part) -> Csr:
    if isinstance(part, Csr):
        return part
    counts = part.degrees(None)
    indptr = np.zeros(part.node_count + 1, id_type(part.edge_count))
    np.cumsum(counts, out=indptr[1:])
    positions = spread_positions(*part.spans(np.arange(part.node_count)))
    return Csr(
        indptr, part.ends_at(positions), part.edges_at(positions), part.loops, part.has_parallel
    )
