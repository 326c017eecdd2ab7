"""An aggregate whose rows are too many to hold at once: they are made and grouped in batches.

The nodes that the pipeline starts with are cut into batches, each of which runs through the other
operators and is grouped; memory is that of one batch and of the groups. Which aggregates can be
put together:

| groups depend on | aggregates |
|---|---|
| the variable that the pipeline starts with | all: a group is never cut |
| others, or nothing | `count`, sums of whole numbers, `min`, `max` |
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Final, Self

import numpy as np
import pyarrow as pa

from omnigraph.dataclass import dataclass
from omnigraph.query.plan.plan import AggregateValue, Expand, NodeScan, Operator, ReadPlan
from omnigraph.query.plan.walk import value_variables
from omnigraph.read.context import Context
from omnigraph.read.liveness import ignores_repeats
from omnigraph.read.operators.aggregate import groups_of
from omnigraph.read.operators.group_batches import (
    GroupTotals,
    MadeGroups,
    all_columns,
    joined,
    with_partial_columns,
)
from omnigraph.read.planner import Estimates
from omnigraph.read.profile import OperatorTrace
from omnigraph.read.row_table import ONE_ROW, RowTable
from omnigraph.read.shapes.fold_split import (
    FoldSplit,
    arrangements,
    best_split,
    is_whole_sum,
)
from omnigraph.read.shapes.folded_aggregate import grouped_rows
from omnigraph.read.shapes.row_pipeline import RowPipeline, ordered_groups

_BATCH_SHARE: Final = 4
"""A batch has about this share (1/n) of the rows that may be held at once."""
_CELLS_PER_OPERATOR: Final = 4
"""Numbers per row that an operator may hold while it makes rows."""
_BATCHES_MAX: Final = 1 << 10
"""An aggregate over so many times more rows would not end: the limit of memory refuses it."""


@dataclass(frozen=True, eq=False)
class BatchedAggregate:
    """An aggregate plan, its split, and about how many rows it has."""

    context: Context
    plan: ReadPlan
    split: FoldSplit
    scan: NodeScan
    rows: float

    @classmethod
    def matching(cls, context: Context, plan: ReadPlan) -> Self | None:
        """Match an aggregate over many rows that can be put together from batches."""
        if not plan.is_aggregate or plan.ranking is not None:
            return None
        if most_rows(plan.pipeline, context.estimates) <= _rows_at_once(context, plan):
            return None
        if ignores_repeats(plan) and not plan.group_keys:
            # Sets of nodes stay small.
            return None
        split = best_split(plan, context.estimates) if context.folds else None
        if split is not None:
            return cls._fitting(context, plan, split)
        for pipeline in arrangements(plan.pipeline):
            found = cls._fitting(context, plan, FoldSplit(pipeline, ()))
            if found is not None:
                return found
        return None

    @classmethod
    def _fitting(cls, context: Context, plan: ReadPlan, split: FoldSplit) -> Self | None:
        scan = split.kept[0]
        if not isinstance(scan, NodeScan) or len(split.kept) == 1:
            return None
        if not _keeps_groups(plan, scan.variable) and not _is_additive(plan):
            return None
        rows, at_once = most_rows(split.kept, context.estimates), _rows_at_once(context, plan)
        if not at_once < rows <= at_once * _BATCHES_MAX:
            return None
        return cls(context, plan, split, scan, rows)

    @property
    def batches(self) -> int:
        """About how many batches there are."""
        return math.ceil(self.rows * _BATCH_SHARE / _rows_at_once(self.context, self.plan))

    def run(self) -> list[pa.Array]:
        """Run batches of the first scan through the other operators."""
        context, plan = self.context, self.plan
        with context.profile.operator("Batches") as trace:
            groups = self._groups()
            trace.inner[:] = _summed(trace.inner)
            trace.rows = None if groups is None else groups.count
        if groups is None:
            return RowPipeline(context, plan, ignores_repeats(plan)).run()
        with context.profile.operator("Return") as trace:
            found = ordered_groups(context, plan, groups)
            trace.rows = len(found[0])
        context.guard.check_result(len(found[0]))
        return found

    def _groups(self) -> MadeGroups | None:
        """Return all groups; None when sums of whole numbers do not fit."""
        pipeline = RowPipeline(self.context, self.plan, ignores_repeats(self.plan))
        rows = pipeline.rows((self.scan,), ONE_ROW, None)
        if _keeps_groups(self.plan, self.scan.variable):
            return joined(
                [
                    all_columns(grouped_rows(pipeline, self.plan, self.split, batch), self.plan)
                    for batch in self._batches(rows)
                ]
            )
        partial = with_partial_columns(self.plan)
        totals = GroupTotals(self.context, partial)
        for batch in self._batches(rows):
            totals.add(grouped_rows(pipeline, partial, self.split, batch))
        found = totals.result(self.plan)
        return found if totals.is_exact else None

    def _batches(self, rows: RowTable) -> Iterator[RowTable]:
        """Cut rows into batches, between groups where these depend on them; at least one batch."""
        plan = self.plan
        per_row = self.rows / max(rows.count, 1)
        at_once = _rows_at_once(self.context, plan)
        size = max(int(at_once / _BATCH_SHARE / max(per_row, 1.0)), 1)
        ends = np.arange(size, rows.count, size)
        if _keeps_groups(plan, self.scan.variable):
            keys = [plan.columns[index].expression for index in plan.group_keys]
            codes = groups_of(self.context, rows, keys).codes
            order = np.argsort(codes, kind="stable")
            rows, codes = rows.at(order), codes[order]
            # A batch ends with the last row of a group.
            ends = np.unique(np.searchsorted(codes, codes[ends], side="right"))
        bounds = [0, *(end for end in ends.tolist() if end < rows.count), rows.count]
        for first, last in pairwise(bounds):
            yield rows.at(np.arange(first, last))


def _rows_at_once(context: Context, plan: ReadPlan) -> int:
    """Return how many rows of a plan may be held at once, within the limits of the query."""
    cells = _CELLS_PER_OPERATOR * len(plan.pipeline)
    return max(context.guard.rows_that_fit(cells, context.rows_at_once), 1)


def most_rows(pipeline: tuple[Operator, ...], estimates: Estimates) -> float:
    """Estimate how many rows there are after the operator that makes the most."""
    rows = most = 1.0
    for operator in pipeline:
        if isinstance(operator, NodeScan):
            rows *= estimates.nodes(operator.type_name, operator.filters)
        elif isinstance(operator, Expand):
            passing = estimates.nodes(operator.target_type, operator.target_filters)
            rows *= estimates.fanout(operator)
            most = max(most, rows)
            rows *= passing / max(estimates.everything(operator.target_type), 1.0)
        most = max(most, rows)
    return most


def _keeps_groups(plan: ReadPlan, root: str) -> bool:
    """Whether each group belongs to nodes of one variable alone."""
    keys = [plan.columns[index].expression for index in plan.group_keys]
    return bool(keys) and all(set(value_variables(key)) == {root} for key in keys)


def _is_additive(plan: ReadPlan) -> bool:
    """Whether aggregates of parts of a group can be put together."""
    return all(
        value.function in ("min", "max")
        or (not value.distinct and (value.function == "count" or is_whole_sum(value)))
        for column in plan.columns
        if isinstance(value := column.expression, AggregateValue)
    )


def _summed(traces: list[OperatorTrace]) -> list[OperatorTrace]:
    """Return one trace for each operator, with the rows and the time of all batches."""
    found: dict[str, OperatorTrace] = {}
    for trace in traces:
        known = found.setdefault(trace.operator, OperatorTrace(trace.operator, {}, 0, 0.0))
        known.details |= trace.details
        known.rows = (known.rows or 0) + (trace.rows or 0)
        known.elapsed_ms = round((known.elapsed_ms or 0.0) + (trace.elapsed_ms or 0.0), 3)
    return list(found.values())
