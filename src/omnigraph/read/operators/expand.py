"""Hops from the rows that exist to new variables, or between two known ones."""

from __future__ import annotations

import numpy as np

from omnigraph.names import TableKey
from omnigraph.query.plan.plan import Expand
from omnigraph.read.access.adjacency import Hops, LoopEnd, Pairs
from omnigraph.read.context import Context
from omnigraph.read.operators.scan import passing
from omnigraph.read.row_table import (
    NULL,
    Entities,
    Mask,
    Positions,
    RowIds,
    RowTable,
    ascending_ids,
    distinct_ids,
    pair_keys,
    repeats,
    slices,
)


def expand_rows(
    context: Context, rows: RowTable, expand: Expand, wanted: frozenset[str], *, is_set: bool
) -> RowTable:
    """Give every row the nodes that its source reaches; rows that reach none are dropped.

    `wanted` are the variables that are needed afterwards; with `is_set` equal rows may be merged.
    """
    rows = rows.where(rows.row_ids(expand.source) != NULL)
    if not rows.count:
        return _nothing(rows, expand)
    hops = context.adjacency.hops(expand, rows.count)
    if expand.edge_variable is not None:
        return _by_edge(context, rows, expand, hops)
    if rows.count == 1 or (is_set and wanted == frozenset({expand.target})):
        return _targets_alone(context, rows, expand, hops)
    distinct, kinds = distinct_ids(rows.row_ids(expand.source))
    pairs = _filtered(context, expand, reach(hops, expand, distinct))
    return _joined(context, rows, kinds, pairs, expand)


def _targets_alone(context: Context, rows: RowTable, expand: Expand, hops: Hops) -> RowTable:
    """Reach from one row, or from many whose origin does not matter: no pairs are needed."""
    loop_end: LoopEnd = "source" if expand.is_reversed else "target"
    found = hops.reach_set(
        ascending_ids(rows.row_ids(expand.source)),
        min_hops=expand.min,
        max_hops=expand.max,
        loop_end=loop_end,
    )
    table_key = TableKey.node(expand.target_type)
    found = passing(context, expand.target, table_key, expand.target_filters, found)
    entities = Entities(table_key, found)
    if rows.count == 1:
        return rows.at(np.zeros(len(found), np.intp)).with_variable(expand.target, entities)
    return RowTable(len(found), {expand.target: entities})


def _nothing(rows: RowTable, expand: Expand) -> RowTable:
    """Return no rows, without reading edges."""
    none = np.empty(0, np.int64)
    widened = rows.with_variable(expand.target, Entities(TableKey.node(expand.target_type), none))
    if expand.edge_variable is None:
        return widened
    return widened.with_variable(expand.edge_variable, Entities(TableKey.edge(expand.edge), none))


def close_cycle(context: Context, rows: RowTable, expand: Expand, known: str) -> RowTable:
    """Keep the rows whose source reaches the node that another variable already holds."""
    rows = rows.where((rows.row_ids(expand.source) != NULL) & (rows.row_ids(known) != NULL))
    hops = context.adjacency.hops(expand, rows.count)
    if expand.min == expand.max == 1:
        return rows.where(hops.leads(rows.row_ids(expand.source), rows.row_ids(known)))
    distinct, kinds = distinct_ids(rows.row_ids(expand.source))
    pairs = reach(hops, expand, distinct)
    reached = pair_keys(pairs.starts, pairs.nodes)
    wanted = pair_keys(kinds, rows.row_ids(known))
    return rows.where(np.isin(wanted, reached))


def has_neighbour(context: Context, rows: RowTable, expand: Expand) -> Mask:
    """Return for each row whether its source has any edge to follow."""
    sources = rows.row_ids(expand.source)
    is_known = sources != NULL
    found = np.zeros(rows.count, np.bool_)
    hops = context.adjacency.hops(expand, int(is_known.sum()))
    found[is_known] = hops.has_neighbour(sources[is_known])
    return found


def reach(hops: Hops, expand: Expand, nodes: RowIds) -> Pairs:
    """Follow an unbound hop from distinct nodes."""
    loop_end: LoopEnd = "source" if expand.is_reversed else "target"
    return hops.reach(nodes, min_hops=expand.min, max_hops=expand.max, loop_end=loop_end)


def _filtered(context: Context, expand: Expand, pairs: Pairs) -> Pairs:
    if not expand.target_filters:
        return pairs
    distinct, inverse = distinct_ids(pairs.nodes)
    passed = passing(
        context, expand.target, TableKey.node(expand.target_type), expand.target_filters, distinct
    )
    keep = np.isin(distinct, passed, assume_unique=True)[inverse]
    return Pairs(pairs.starts[keep], pairs.nodes[keep])


def _joined(
    context: Context, rows: RowTable, kinds: Positions, pairs: Pairs, expand: Expand
) -> RowTable:
    counts = np.bincount(pairs.starts, minlength=int(kinds.max(initial=0)) + 1)
    firsts = np.cumsum(counts) - counts
    wanted = counts[kinds]
    context.guard.claim(f"the hop `{expand.edge}`", rows=int(wanted.sum()), cells=rows.width + 1)
    targets = pairs.nodes[slices(firsts[kinds], wanted)]
    return rows.at(repeats(wanted)).with_variable(
        expand.target, Entities(TableKey.node(expand.target_type), targets)
    )


def _by_edge(context: Context, rows: RowTable, expand: Expand, hops: Hops) -> RowTable:
    found = hops.steps(rows.row_ids(expand.source))
    context.guard.claim(f"the hop `{expand.edge}`", rows=len(found.starts), cells=rows.width + 2)
    keep = np.ones(len(found.starts), np.bool_)
    if expand.target_filters:
        passed = passing(
            context,
            expand.target,
            TableKey.node(expand.target_type),
            expand.target_filters,
            ascending_ids(found.nodes),
        )
        keep = np.isin(found.nodes, passed)
    widened = rows.at(found.starts[keep]).with_variable(
        expand.target, Entities(TableKey.node(expand.target_type), found.nodes[keep])
    )
    if expand.edge_variable is None:
        return widened
    return widened.with_variable(
        expand.edge_variable, Entities(TableKey.edge(expand.edge), found.edges[keep])
    )
