"""An aggregate over paths that are counted and added up instead of written out.

Which hops that concerns is decided in `omnigraph.read.shapes.fold_split`, how their totals are
made in `omnigraph.read.operators.folded`. Whether the stored data permits it is known after
the other operators have run; if it does not, the rows of the hops are written out, with the same
result.
"""

from __future__ import annotations

from typing import Self

import pyarrow as pa

from omnigraph.dataclass import dataclass
from omnigraph.query.plan.plan import ReadPlan
from omnigraph.query.plan.print_plan import operator_line
from omnigraph.query.plan.walk import needed_variables
from omnigraph.read.context import Context
from omnigraph.read.liveness import ignores_repeats, result_variables
from omnigraph.read.operators.aggregate import GroupedResult
from omnigraph.read.operators.folded.channels import FoldedHops
from omnigraph.read.operators.folded.hops import fold_hops
from omnigraph.read.row_table import ONE_ROW, RowTable
from omnigraph.read.shapes.fold_split import FoldSplit, best_split, introduced
from omnigraph.read.shapes.row_pipeline import RowPipeline, ordered_groups


@dataclass(frozen=True, eq=False)
class FoldedAggregate:
    """An aggregate plan, and how its pipeline is split."""

    context: Context
    plan: ReadPlan
    split: FoldSplit

    @classmethod
    def matching(cls, context: Context, plan: ReadPlan) -> Self | None:
        """Match an aggregate that does not need the rows of some of its hops."""
        if not context.folds:
            return None
        split = best_split(plan, context.estimates)
        return None if split is None else cls(context, plan, split)

    def run(self) -> list[pa.Array]:
        """Run the operators whose rows are needed and fold the others; write out if that fails."""
        context, plan, split = self.context, self.plan, self.split
        pipeline = RowPipeline(context, plan, is_set=False)
        rows = pipeline.rows(split.kept, ONE_ROW, _wanted(plan, split))
        counted = _folded(pipeline, plan, split, rows)
        if counted is None and split.kept[0] != plan.pipeline[0]:
            # The pipeline starts where folding is cheap, which is no good start for writing out.
            return RowPipeline(context, plan, ignores_repeats(plan)).run()
        if counted is None:
            rows = pipeline.rows(split.folded, rows, result_variables(plan))
            groups = GroupedResult(context, rows, plan)
        else:
            groups = GroupedResult(context, counted[0], plan, counted[1])
        with context.profile.operator("Return") as trace:
            found = ordered_groups(context, plan, groups)
            trace.rows = len(found[0])
        context.guard.check_result(len(found[0]))
        return found


def grouped_rows(
    pipeline: RowPipeline, plan: ReadPlan, split: FoldSplit, rows: RowTable
) -> GroupedResult:
    """Run rows of the first operator of a split through the others, and group them."""
    context = pipeline.context
    rows = pipeline.rows(split.kept[1:], rows, _wanted(plan, split))
    counted = _folded(pipeline, plan, split, rows) if split.folded else None
    if counted is not None:
        return GroupedResult(context, counted[0], plan, counted[1])
    rows = pipeline.rows(split.folded, rows, result_variables(plan))
    return GroupedResult(context, rows, plan)


def _wanted(plan: ReadPlan, split: FoldSplit) -> frozenset[str]:
    """Return the variables that are needed after the operators whose rows are kept."""
    behind = {name for operator in split.folded for name in needed_variables(operator)}
    made = {name for operator in split.folded for name in introduced(operator)}
    return (result_variables(plan) | behind) - made


def _folded(
    pipeline: RowPipeline, plan: ReadPlan, split: FoldSplit, rows: RowTable
) -> tuple[RowTable, FoldedHops] | None:
    context = pipeline.context
    shown = "; ".join(map(operator_line, split.folded)) if context.profile.is_on else ""
    with context.profile.operator(f"Fold {shown}") as trace:
        found = fold_hops(context, rows, plan, split.folded, pipeline.inner)
        trace.rows = rows.count if found is None else int(found[1].counts.sum())
        context.profile.note(folded=found is not None)
    return found
