"""The last hop of an aggregate query, counted and added up instead of written out.

`match { $a: Person  $a knows $b } return { $a.city, avg($b.age) }` needs no row per edge: how many
friends somebody has, and the sum of their ages, come straight from the adjacency, one number per
row before the hop. What must hold for it:

1. The hop is the last operator; groups do not depend on the nodes that it reaches.
2. Of reached nodes only `count`, `sum` and `avg` are asked, without `distinct`; the latter two of
   whole numbers whose sums are exact as doubles. Sums of floats depend on their order.
3. The adjacency is in memory and has one step per neighbour: no parallel edges, one direction.

In all other cases the rows are written out, with the same result.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.names import TableKey
from omnigraph.query.plan.plan import (
    AggregateValue,
    EntityId,
    Expand,
    NodeScan,
    PropertyValue,
    ReadPlan,
    Value,
)
from omnigraph.query.plan.walk import value_variables
from omnigraph.read.access.adjacency import TopologyHops
from omnigraph.read.context import Context
from omnigraph.read.operators.scan import scan_nodes
from omnigraph.read.planner import turned
from omnigraph.read.rows import NULL, RowIds, RowTable
from omnigraph.values import PropType, Scalar

Counts = npt.NDArray[np.int64]

_WHOLE: Final = (Scalar.I32, Scalar.I64, Scalar.U32, Scalar.U64)
_EXACT_MAX: Final = 2**53
_FILTERED_SHARE_MAX: Final = 8
"""Filters of the reached nodes are asked of the whole type only from so large a share of rows."""


@dataclass(frozen=True, eq=False)
class FoldedHop:
    """What a hop adds to each row before it; rows that reach nothing are gone."""

    target: str
    counts: Counts
    """How many nodes the row reaches."""
    properties: Mapping[str, tuple[Counts, Counts]]
    """Of reached nodes: the sum of a property, and how many have a value."""


def foldable(plan: ReadPlan) -> ReadPlan | None:
    """Return the plan in a form whose last hop can be folded, if there is one."""
    if not plan.is_aggregate or plan.ranking is not None or not plan.pipeline:
        return None
    last = plan.pipeline[-1]
    if not isinstance(last, Expand) or last.edge_variable is not None or "@" in last.target:
        return None
    if _fits(plan, last):
        return plan
    # Groups by the far end of a single hop: walk it from there.
    scan = plan.pipeline[0]
    if len(plan.pipeline) == 2 and isinstance(scan, NodeScan) and last.max == 1:
        start = NodeScan(last.target, last.target_type, last.target_filters, last.properties)
        back = turned(last, scan)
        return replace(plan, pipeline=(start, back)) if _fits(plan, back) else None
    return None


def _fits(plan: ReadPlan, hop: Expand) -> bool:
    is_chain = hop.source_type == hop.target_type and hop.max > 1
    return all(
        _is_foldable(column.expression, hop.target, is_chain=is_chain) for column in plan.columns
    )


def _is_foldable(value: Value, target: str, *, is_chain: bool) -> bool:
    if not isinstance(value, AggregateValue):
        return target not in value_variables(value)
    argument = value.argument
    if isinstance(argument, EntityId):
        return argument.variable != target or (value.function == "count" and not value.distinct)
    if not isinstance(argument, PropertyValue):
        return False
    if argument.variable != target:
        # A value that comes several times matters only to sums.
        is_sum = value.function in ("sum", "avg") and not value.distinct
        return not is_sum or _is_whole(argument.prop_type)
    is_sum = value.function in ("sum", "avg")
    return is_sum and not value.distinct and not is_chain and _is_whole(argument.prop_type)


def _is_whole(prop_type: PropType) -> bool:
    return not prop_type.is_list and prop_type.scalar in _WHOLE


def fold_hop(context: Context, rows: RowTable, plan: ReadPlan) -> tuple[RowTable, FoldedHop] | None:
    """Fold the last hop of a plan over the rows before it; None when they must be written out."""
    hop = plan.pipeline[-1]
    if not isinstance(hop, Expand):
        return None
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
    return _folded(context, rows, plan, hop, hops)


def _folded(
    context: Context, rows: RowTable, plan: ReadPlan, hop: Expand, hops: TopologyHops
) -> tuple[RowTable, FoldedHop] | None:
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
    return rows, FoldedHop(hop.target, counts, properties)


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
