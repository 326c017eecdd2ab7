"""An aggregate whose last hop is counted and added up instead of written out.

`match { $a: Person  $a knows $b } return { $a.city, avg($b.age) }` needs no row per edge: the
number of friends of a person and the sum of their ages come straight from the adjacency, one
number per row before the hop. The conditions on the plan:

1. The hop is the last operator; groups do not depend on the nodes that it reaches.
2. Of reached nodes only `count`, `sum` and `avg` are asked, without `distinct`; the latter two of
   whole numbers only. Sums of floats depend on their order.

Whether the stored data permits it as well is known after the operators before the hop have run
(`omnigraph.read.operators.counted_hop`). If it does not, the rows of the hop are written out, with
the same result.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Self

import pyarrow as pa

from omnigraph.query.plan.plan import (
    AggregateValue,
    CycleEnd,
    EntityId,
    Expand,
    NodeScan,
    PropertyValue,
    ReadPlan,
    Value,
)
from omnigraph.query.plan.print_plan import operator_line
from omnigraph.query.plan.walk import value_variables
from omnigraph.read.context import Context
from omnigraph.read.liveness import ignores_repeats, result_variables
from omnigraph.read.operators.aggregate import GroupedResult
from omnigraph.read.operators.counted_hop import count_hop
from omnigraph.read.planner import turned
from omnigraph.read.row_table import ONE_ROW
from omnigraph.read.shapes.row_pipeline import RowPipeline, ordered_groups
from omnigraph.values import PropType, Scalar

_WHOLE: Final = (Scalar.I32, Scalar.I64, Scalar.U32, Scalar.U64)


@dataclass(frozen=True, eq=False)
class FoldedAggregate:
    """An aggregate plan and its last hop."""

    context: Context
    plan: ReadPlan
    hop: Expand

    @classmethod
    def matching(cls, context: Context, plan: ReadPlan) -> Self | None:
        """Match an aggregate over a last hop, in the direction in which it can be counted."""
        if not context.folds:
            return None
        folded = foldable(plan)
        if folded is None or ignores_repeats(plan):
            return None
        hop = folded.pipeline[-1]
        return cls(context, folded, hop) if isinstance(hop, Expand) else None

    def run(self) -> list[pa.Array]:
        """Run all but the last hop and count that one; write its rows out if that fails."""
        context, plan, hop = self.context, self.plan, self.hop
        wanted = result_variables(plan)
        pipeline = RowPipeline(context, plan, is_set=False)
        rows = pipeline.rows(plan.pipeline[:-1], ONE_ROW, wanted | {hop.source})
        shown = operator_line(hop) if context.profile.is_on else ""
        with context.profile.operator(shown) as trace:
            counted = count_hop(context, rows, plan, hop)
            trace.rows = rows.count if counted is None else int(counted[1].counts.sum())
            context.profile.note(folded=counted is not None)
        if counted is None:
            groups = GroupedResult(context, pipeline.rows((hop,), rows, wanted), plan)
        else:
            groups = GroupedResult(context, counted[0], plan, counted[1])
        with context.profile.operator("Return") as trace:
            found = ordered_groups(context, plan, groups)
            trace.rows = len(found[0])
        context.guard.check_result(len(found[0]))
        return found


def foldable(plan: ReadPlan) -> ReadPlan | None:
    """Return the plan in a form whose last hop can be counted, if there is one."""
    if not plan.is_aggregate or plan.ranking is not None or not plan.pipeline:
        return None
    last = plan.pipeline[-1]
    if not isinstance(last, Expand) or last.edge_variable is not None:
        return None
    if isinstance(last.target, CycleEnd):
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
        # Repeating a value matters only to sums.
        is_sum = value.function in ("sum", "avg") and not value.distinct
        return not is_sum or _is_whole(argument.prop_type)
    is_sum = value.function in ("sum", "avg")
    return is_sum and not value.distinct and not is_chain and _is_whole(argument.prop_type)


def _is_whole(prop_type: PropType) -> bool:
    return not prop_type.is_list and prop_type.scalar in _WHOLE
