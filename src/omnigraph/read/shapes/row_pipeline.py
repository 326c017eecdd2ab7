"""Any plan: run its operators over a table of row ids, then group or sort, cut, and fetch."""

from __future__ import annotations

from typing import Protocol, Self

import numpy as np
import pyarrow as pa

from omnigraph.dataclass import dataclass
from omnigraph.names import TableKey
from omnigraph.query.plan.plan import (
    AntiJoin,
    CycleEnd,
    EntityId,
    Expand,
    Filter,
    NodeScan,
    Operator,
    OptionalMatch,
    ReadPlan,
    RrfRanking,
    SameId,
)
from omnigraph.query.plan.print_plan import operator_line
from omnigraph.read.column_names import ID
from omnigraph.read.context import Context
from omnigraph.read.liveness import ignores_repeats, live_after, result_variables
from omnigraph.read.operators.aggregate import GroupedResult, distinct_result
from omnigraph.read.operators.anti_join import anti_join
from omnigraph.read.operators.expand import close_cycle, expand_rows
from omnigraph.read.operators.filter import filter_rows
from omnigraph.read.operators.join import cross_join
from omnigraph.read.operators.optional import optional_match
from omnigraph.read.operators.order import order_result, order_rows
from omnigraph.read.operators.project import project, values_of
from omnigraph.read.operators.rank import candidates_needed, fuse, ranked_scan
from omnigraph.read.operators.scan import scan_nodes
from omnigraph.read.row_table import (
    ONE_ROW,
    Entities,
    Positions,
    RowTable,
    distinct_pairs,
    distinct_rows,
    is_ascending,
)


@dataclass(frozen=True, eq=False)
class RowPipeline:
    """One plan, operator by operator."""

    context: Context
    plan: ReadPlan
    is_set: bool
    """Whether equal rows may be merged as soon as they are equal."""

    @classmethod
    def matching(cls, context: Context, plan: ReadPlan) -> Self | None:
        """Match every plan."""
        return cls(context, plan, ignores_repeats(plan))

    def run(self) -> list[pa.Array]:
        """Return the columns of the result."""
        context, plan = self.context, self.plan
        rows = self.rows(plan.pipeline, ONE_ROW, result_variables(plan))
        if isinstance(plan.ranking, RrfRanking):
            fuse(context, rows.row_ids(plan.ranking.variable), plan.ranking)
        with context.profile.operator("Return") as trace:
            found = self._returned(rows)
            trace.rows = len(found[0])
        context.guard.check_result(len(found[0]))
        return found

    def _returned(self, rows: RowTable) -> list[pa.Array]:
        if self.plan.is_aggregate:
            return ordered_groups(
                self.context, self.plan, GroupedResult(self.context, rows, self.plan)
            )
        if self.plan.distinct:
            return self._distinct(distinct_result(self.context, rows, self.plan))
        kept = order_rows(self.context, rows, self.plan)
        self.context.guard.check_result(kept.count)
        return project(self.context, kept, self.plan.columns)

    def _distinct(self, rows: RowTable) -> list[pa.Array]:
        def column_at(index: int, positions: Positions) -> pa.Array:
            value = self.plan.columns[index].expression
            return values_of(self.context, rows.at(positions), value)

        kept = rows.at(order_result(rows.count, self.plan, column_at))
        self.context.guard.check_result(kept.count)
        return project(self.context, kept, self.plan.columns)

    def inner(self, pipeline: tuple[Operator, ...], rows: RowTable) -> RowTable:
        """Run the pipeline of a block; the operator around it uses all variables."""
        return self.rows(pipeline, rows, None)

    def rows(
        self, pipeline: tuple[Operator, ...], rows: RowTable, wanted: frozenset[str] | None
    ) -> RowTable:
        """Run operators over rows; `wanted` are the variables needed afterwards, None for all."""
        live = None if wanted is None else live_after(pipeline, wanted)
        position = 0
        while position < len(pipeline):
            operator = pipeline[position]
            closed = _closed_variable(pipeline, position)
            self.context.guard.check()
            shown = operator_line(operator) if self.context.profile.is_on else ""
            with self.context.profile.operator(shown) as trace:
                if isinstance(operator, Expand) and closed is not None:
                    rows = close_cycle(self.context, rows, operator, closed)
                    position += 1
                else:
                    rows = self._operator(operator, rows, None if live is None else live[position])
                if live is not None:
                    rows = self._pruned(rows, live[position])
                trace.rows = rows.count
            position += 1
        return rows

    def _pruned(self, rows: RowTable, live: frozenset[str]) -> RowTable:
        """Drop unused variables, and merge rows that became equal where that changes nothing."""
        dead = rows.entities.keys() - live
        if not dead:
            return rows
        kept = rows.without(*dead)
        if not self.is_set or rows.count <= 1:
            return kept
        if kept.width == 1 and is_ascending(next(iter(kept.entities.values())).row_ids):
            return kept
        pairs = distinct_pairs(kept) if kept.width == 2 else None
        return kept.at(np.sort(distinct_rows(kept)[0])) if pairs is None else pairs

    def _operator(
        self, operator: Operator, rows: RowTable, live: frozenset[str] | None
    ) -> RowTable:
        match operator:
            case NodeScan():
                return self._scan(operator, rows)
            case Expand():
                is_set = live is not None and self.is_set
                wanted = frozenset() if live is None else live
                return expand_rows(self.context, rows, operator, wanted, is_set=is_set)
            case Filter(predicate):
                return filter_rows(self.context, rows, (predicate,))
            case AntiJoin():
                return anti_join(self.context, rows, operator, self.inner)
            case OptionalMatch():
                return optional_match(self.context, rows, operator, self.inner)

    def _scan(self, scan: NodeScan, rows: RowTable) -> RowTable:
        ranking = self.plan.ranking
        if ranking is not None and scan.variable == ranking.variable:
            found = ranked_scan(self.context, scan, ranking, candidates_needed(self.plan))
        else:
            found = scan_nodes(self.context, scan, self._prefetch(scan))
        entities = Entities(TableKey.node(scan.type_name), found)
        return cross_join(self.context.guard, rows, scan.variable, entities)

    def _prefetch(self, scan: NodeScan) -> tuple[str, ...]:
        """Return the columns that every row of a scan will need, so that one scan reads all."""
        is_alone = self.plan.pipeline == (scan,)
        is_cut = self.plan.limit is not None and not self.plan.is_aggregate
        if not is_alone or is_cut:
            return ()
        values = (column.expression for column in self.plan.columns)
        # Counting nodes needs no id text; showing them does.
        is_shown = any(isinstance(value, EntityId) for value in values)
        return (*scan.properties, ID) if is_shown else scan.properties


class GroupColumns(Protocol):
    """Groups with their columns."""

    @property
    def count(self) -> int:
        """How many groups there are."""
        ...

    def column(self, index: int, positions: Positions) -> pa.Array:
        """Return one column for some groups."""
        ...


def ordered_groups(context: Context, plan: ReadPlan, groups: GroupColumns) -> list[pa.Array]:
    """Return the columns of an aggregate in the order that the plan asks for."""
    kept = order_result(groups.count, plan, groups.column)
    context.guard.check_result(len(kept))
    return [groups.column(index, kept) for index in range(len(plan.columns))]


def _closed_variable(pipeline: tuple[Operator, ...], position: int) -> str | None:
    """Return the variable with which the next operator compares the end of this hop, if any."""
    expand = pipeline[position]
    if not isinstance(expand, Expand) or expand.edge_variable is not None or expand.target_filters:
        return None
    follower = pipeline[position + 1] if position + 1 < len(pipeline) else None
    if isinstance(follower, Filter) and isinstance(follower.predicate, SameId):
        same = follower.predicate
        if same.right == expand.target and isinstance(expand.target, CycleEnd):
            return same.left
    return None
