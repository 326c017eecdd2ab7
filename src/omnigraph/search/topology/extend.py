"""Makes a topology from one of another state of the same datasets, reading only what differs.

The result is either exactly what a rebuild would give or `None`, which means: rebuild. Why reuse is
correct:

1. A fragment with the same data files holds the same rows under the same row ids, in every
   version; only deletions may differ. Edges of such fragments keep their ends.
2. A row keeps its row id when it is updated, so an edge may lie in another fragment of the base
   than of the new state. When the base has fragments that the new state lacks, only fragments
   without any difference count as shared; then no row can have moved.
3. A node keeps its `id` for the life of its row id, and within one lineage a row id is used once.
   The end nodes of edges must therefore be live and, when the lineage is another, lie in
   fragments that both states have.
4. A dangling edge may get its end when nodes are added: with any, node states must be equal.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from omnigraph.dataclass import dataclass
from omnigraph.search.table_state import TableState
from omnigraph.search.topology.build import EdgeRows, NodeIds, TopologyHandles, read_edges
from omnigraph.search.topology.csr import (
    Csr,
    Ints,
    Mask,
    RowIds,
    build_csr,
    renumbered_csr,
    with_edges,
    without_edges,
)
from omnigraph.search.topology.row_numbers import (
    Numbering,
    ascending,
    numbering_of,
    read_numbering,
    scan_row_ids,
)
from omnigraph.search.topology.topology import Topology, TopologyStates
from omnigraph.search.topology.traverse import Guard
from omnigraph.store.datasets import DatasetHandle

NEW_SHARE_MAX: Final = 0.5
"""Above this share of new edges a rebuild costs about as much."""


def extend_topology(
    base: Topology, handles: TopologyHandles, states: TopologyStates, *, guard: Guard
) -> Topology | None:
    """Return the topology of `states`, or `None` when `base` cannot be extended to it."""
    if base.states.key == states.key:
        return base
    if base.states.same_type != states.same_type:
        return None
    change = _edge_change(base, handles.edge, states.edge)
    if change is None:
        return None
    guard.check()
    out, incoming = (_reduced(csr, change) for csr in (base.out, base.incoming))
    fits = _fit_nodes(base, handles, states, out, incoming)
    if fits is None:
        return None
    guard.check()
    return _joined(states, handles, change, fits=fits, reduced=(out, incoming), guard=guard)


# -- edges -----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _EdgeChange:
    base: Numbering
    kept: Mask | None
    """Over the base's edges; `None` when all stay."""
    kept_row_ids: RowIds
    new_fragments: tuple[int, ...]


def _edge_change(base: Topology, edge: DatasetHandle, state: TableState) -> _EdgeChange | None:
    before = base.states.edge
    if before.key == state.key:
        return _EdgeChange(base.edges, None, np.empty(0, np.uint64), ())
    shared = shared_fragments(before, state)
    added = frozenset(state.fragment_ids_without(shared))
    if not shared or _row_share(edge, added) > NEW_SHARE_MAX:
        return None
    row_ids = ascending(scan_row_ids(edge, shared))
    positions = base.edges.dense(row_ids)
    if (positions < 0).any():
        # The base is of a later state, in which these rows are gone.
        return None
    if len(positions) == base.edges.count:
        return _EdgeChange(base.edges, None, row_ids, tuple(added))
    kept = np.zeros(base.edges.count, dtype=np.bool_)
    kept[positions] = True
    return _EdgeChange(base.edges, kept, row_ids, tuple(added))


def shared_fragments(base: TableState, state: TableState) -> tuple[int, ...]:
    """Return the fragments of `state` whose live rows are live in `base`, or deleted there."""
    present = {fragment.data_identity for fragment in state.fragments}
    if all(fragment.data_identity in present for fragment in base.fragments):
        return state.sharing_data_with(base)
    whole = {fragment.identity for fragment in base.fragments}
    return tuple(f.fragment_id for f in state.fragments if f.identity in whole)


def _row_share(handle: DatasetHandle, fragment_ids: frozenset[int]) -> float:
    counts = [(info.rows, info.fragment_id in fragment_ids) for info in handle.fragments()]
    total = sum(rows for rows, _ in counts)
    return sum(rows for rows, is_new in counts if is_new) / max(total, 1)


def _reduced(csr: Csr, change: _EdgeChange) -> Csr:
    return csr if change.kept is None else without_edges(csr, change.kept)


# -- nodes -----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _NodeFit:
    numbering: Numbering
    dense_map: Ints | None
    """New dense id of every old one; `None` when none changes."""


def _fit_nodes(
    base: Topology,
    handles: TopologyHandles,
    states: TopologyStates,
    out: Csr,
    incoming: Csr,
) -> tuple[_NodeFit, _NodeFit] | None:
    changed = (base.states.source.key, base.states.target.key) != (
        states.source.key,
        states.target.key,
    )
    if changed and base.dangling:
        return None
    used_out = np.diff(out.indptr) > 0
    used_in = np.diff(incoming.indptr) > 0
    if states.same_type:
        used_out = used_in = used_out | used_in
    source = _fit(base.sources, base.states.source, handles.source, states.source, used_out)
    if source is None or states.same_type:
        return None if source is None else (source, source)
    target = _fit(base.targets, base.states.target, handles.target, states.target, used_in)
    return None if target is None else (source, target)


def _fit(
    base: Numbering, before: TableState, handle: DatasetHandle, state: TableState, used: Mask
) -> _NodeFit | None:
    if before.key == state.key:
        return _NodeFit(base, None)
    numbering = read_numbering(handle)
    needed = base.row_ids(np.flatnonzero(used))
    if (numbering.dense(needed) < 0).any():
        return None
    if before.lineage != state.lineage and not _all_shared(needed, before, handle, state):
        return None
    if base.is_prefix_of(numbering):
        return _NodeFit(numbering, None)
    return _NodeFit(numbering, numbering.dense(base.row_ids()))


def _all_shared(
    needed: RowIds, before: TableState, handle: DatasetHandle, state: TableState
) -> bool:
    shared = scan_row_ids(handle, shared_fragments(before, state))
    return bool((numbering_of(ascending(shared)).dense(needed) >= 0).all())


# -- both ------------------------------------------------------------------------------------------


def _joined(
    states: TopologyStates,
    handles: TopologyHandles,
    change: _EdgeChange,
    *,
    fits: tuple[_NodeFit, _NodeFit],
    reduced: tuple[Csr, Csr],
    guard: Guard,
) -> Topology:
    source, target = fits
    source_ids = NodeIds(handles.source, source.numbering)
    target_ids = source_ids if states.same_type else NodeIds(handles.target, target.numbering)
    rows = read_edges(
        handles.edge, source_ids, target_ids, fragment_ids=change.new_fragments, guard=guard
    )
    edges, edge_map = _edge_numbers(change, rows)
    added_out, added_in = _added(states, rows, edges, source.numbering, target.numbering)
    out = renumbered_csr(
        reduced[0],
        node_map=source.dense_map,
        end_map=target.dense_map,
        edge_map=edge_map,
        node_count=source.numbering.count,
    )
    incoming = renumbered_csr(
        reduced[1],
        node_map=target.dense_map,
        end_map=source.dense_map,
        edge_map=edge_map,
        node_count=target.numbering.count,
    )
    guard.check()
    out, incoming = with_edges(out, added_out), with_edges(incoming, added_in)
    dangling = edges.count - out.edge_count
    return Topology(states, source.numbering, target.numbering, edges, out, incoming, dangling)


def _edge_numbers(change: _EdgeChange, rows: EdgeRows) -> tuple[Numbering, Ints | None]:
    if not len(rows.row_ids) and change.kept is None:
        return change.base, None
    edges = numbering_of(ascending(np.concatenate([change.kept_row_ids, rows.row_ids])))
    if change.base.is_prefix_of(edges):
        return edges, None
    return edges, edges.dense(change.base.row_ids())


def _added(
    states: TopologyStates, rows: EdgeRows, edges: Numbering, sources: Numbering, targets: Numbering
) -> tuple[Csr, Csr]:
    present = np.flatnonzero((rows.sources >= 0) & (rows.targets >= 0))
    starts, ends = rows.sources[present], rows.targets[present]
    numbers = edges.dense(rows.row_ids[present])
    counts = (sources.count, targets.count)
    return (
        build_csr(starts, ends, counts=counts, edges=numbers, same_type=states.same_type),
        build_csr(ends, starts, counts=counts[::-1], edges=numbers, same_type=states.same_type),
    )
