"""The last hop of an aggregate, counted from the adjacency instead of written out as rows.

Which plans ask for it is decided in `omnigraph.read.shapes.folded_aggregate`. What must hold for
the stored data:

1. The adjacency is in memory and has one step per neighbour: no parallel edges, one direction.
2. Sums of whole numbers are exact as doubles.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.names import TableKey
from omnigraph.query.plan.plan import (
    AggregateValue,
    Expand,
    NodeScan,
    PropertyValue,
    ReadPlan,
)
from omnigraph.read.access.adjacency import TopologyHops
from omnigraph.read.context import Context
from omnigraph.read.operators.scan import scan_nodes
from omnigraph.read.row_table import NULL, RowIds, RowTable

Counts = npt.NDArray[np.int64]

_EXACT_MAX: Final = 2**53
_FILTERED_SHARE_MAX: Final = 8
"""Filters of reached nodes are evaluated on the whole type only above this share of rows (1/n)."""


@dataclass(frozen=True, eq=False)
class CountedHop:
    """What a hop contributes to each row before it; rows that reach nothing are left out."""

    target: str
    counts: Counts
    """How many nodes the row reaches."""
    properties: Mapping[str, tuple[Counts, Counts]]
    """Of reached nodes: the sum of a property, and how many have a value."""


def count_hop(
    context: Context, rows: RowTable, plan: ReadPlan, hop: Expand
) -> tuple[RowTable, CountedHop] | None:
    """Count the last hop of a plan over the rows before it; None when it must be written out."""
    rows = rows.where(rows.row_ids(hop.source) != NULL)
    if hop.target_filters and rows.count * _FILTERED_SHARE_MAX < context.tables.row_count(
        TableKey.node(hop.source_type)
    ):
        return None
    hops = context.adjacency.hops(hop, rows.count)
    if not isinstance(hops, TopologyHops):
        return None
    is_chain = hop.source_type == hop.target_type and hop.max > 1
    if is_chain and (rows.count != 1 or hop.target_filters):
        return None
    if not is_chain and (hop.min > 1 or not hops.has_single_steps):
        return None
    return _counted(context, rows, plan, hop, hops)


def _counted(
    context: Context, rows: RowTable, plan: ReadPlan, hop: Expand, hops: TopologyHops
) -> tuple[RowTable, CountedHop] | None:
    sources = rows.row_ids(hop.source)
    allowed = _allowed(context, hop)
    counts = _counts(hops, hop, sources, allowed)
    names = _summed(plan, hop.target)
    weights = {name: _weights(context, TableKey.node(hop.target_type), name) for name in names}
    total = int(counts.sum())
    context.guard.check()
    if any(not is_exact_as_double(values, total) for values, _ in weights.values()):
        return None
    if not _others_fit(context, rows, plan, hop.target, total):
        return None
    is_live = counts > 0
    if not is_live.all():
        rows, counts, sources = rows.where(is_live), counts[is_live], sources[is_live]
    properties: dict[str, tuple[Counts, Counts]] = {}
    for name, (values, is_value) in weights.items():
        present = is_value if allowed is None else _both(is_value, allowed, len(values))
        masked = values if present is None else values * present
        sums = hops.sums(sources, masked)
        known = counts if present is None else hops.sums(sources, present)
        properties[name] = (sums, known)
    return rows, CountedHop(hop.target, counts, properties)


def _both(
    is_value: npt.NDArray[np.bool_] | None, allowed: RowIds, count: int
) -> npt.NDArray[np.bool_]:
    mask = np.zeros(count, np.bool_)
    mask[allowed] = True
    return mask if is_value is None else mask & is_value


def _allowed(context: Context, hop: Expand) -> RowIds | None:
    """Return the positions of the nodes that a hop may reach; None when it may reach all."""
    if not hop.target_filters:
        return None
    table_key = TableKey.node(hop.target_type)
    scan = NodeScan(hop.target, hop.target_type, hop.target_filters)
    everything = context.tables.all_rows(table_key)
    return np.searchsorted(everything, scan_nodes(context, scan))


def _counts(hops: TopologyHops, hop: Expand, sources: RowIds, allowed: RowIds | None) -> Counts:
    if allowed is None:
        return hops.counts(sources, hop)
    return hops.sums(sources, _both(None, allowed, hops.target_count))


def _weights(
    context: Context, table_key: str, name: str
) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_] | None]:
    """Return a property of all nodes, narrow and zero for null, and which have a value."""
    column = context.tables.whole(table_key, [name])[1][name]
    is_value = None
    if column.null_count:
        is_value = column.is_valid().to_numpy(zero_copy_only=False)
        column = column.fill_null(0)
    return _narrowed(column.to_numpy(zero_copy_only=False)), is_value


def _narrowed(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return whole numbers in the narrowest signed type; those beyond 63 bits stay as they are."""
    low, high = (int(values.min()), int(values.max())) if len(values) else (0, 0)
    for width in (np.int8, np.int16, np.int32, np.int64):
        if np.iinfo(width).min <= low and high <= np.iinfo(width).max:
            return values.astype(width, copy=False)
    return values


def _summed(plan: ReadPlan, variable: str) -> set[str]:
    return {value.property for value in _summed_values(plan) if value.variable == variable}


def _summed_values(plan: ReadPlan) -> Iterable[PropertyValue]:
    for column in plan.columns:
        value = column.expression
        if not isinstance(value, AggregateValue) or value.function not in ("sum", "avg"):
            continue
        if isinstance(value.argument, PropertyValue) and not value.distinct:
            yield value.argument


def _others_fit(context: Context, rows: RowTable, plan: ReadPlan, target: str, total: int) -> bool:
    """Whether sums over other variables are exact, however often each row counts."""
    for value in _summed_values(plan):
        if value.variable != target:
            table_key = rows.entities[value.variable].table_key
            row_ids = rows.row_ids(value.variable)
            column = context.tables.fetch(table_key, row_ids, [value.property])[value.property]
            if not is_exact_as_double(_numbers(column), total):
                return False
    return True


def _numbers(column: pa.Array) -> npt.NDArray[Any]:
    found: npt.NDArray[Any] = column.drop_null().to_numpy(zero_copy_only=False)
    return found


def is_exact_as_double(values: npt.NDArray[Any], count: int) -> bool:
    """Whether sums of up to `count` of these whole numbers are exact as doubles."""
    if not len(values):
        return True
    largest = max(abs(int(values.max())), abs(int(values.min())))
    return largest * max(count, 1) < _EXACT_MAX
