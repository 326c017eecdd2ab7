"""A plan that is one ranked scan: the ranking gives the whole order, ties included."""

from __future__ import annotations

from typing import Self

import pyarrow as pa

from omnigraph.dataclass import dataclass
from omnigraph.names import TableKey
from omnigraph.query.plan.plan import NearestRanking, NodeScan, Ranking, ReadPlan, RrfRanking, Score
from omnigraph.query.plan.print_plan import operator_line
from omnigraph.read.context import Context
from omnigraph.read.operators.project import project
from omnigraph.read.operators.rank import candidates_needed, fuse, ranked_scan
from omnigraph.read.row_table import Entities, RowTable


@dataclass(frozen=True, eq=False)
class RankOnly:
    """One scan and its ranking, of which a page is returned."""

    context: Context
    plan: ReadPlan
    scan: NodeScan
    ranking: Ranking

    @classmethod
    def matching(cls, context: Context, plan: ReadPlan) -> Self | None:
        """Match a scan that is sorted by nothing but its ranking, best first."""
        ranking = plan.ranking
        if ranking is None or len(plan.pipeline) != 1 or plan.is_aggregate or plan.distinct:
            return None
        scan, first = plan.pipeline[0], plan.order[0]
        if not isinstance(scan, NodeScan) or first.expression != Score(ranking):
            return None
        is_best_first = first.descending is not isinstance(ranking, NearestRanking)
        if not is_best_first or not all(key.implicit for key in plan.order[1:]):
            return None
        return cls(context, plan, scan, ranking)

    def run(self) -> list[pa.Array]:
        """Return the columns of the best nodes."""
        context, plan = self.context, self.plan
        context.guard.check()
        shown = operator_line(self.scan) if context.profile.is_on else ""
        with context.profile.operator(shown) as trace:
            found = ranked_scan(context, self.scan, self.ranking, candidates_needed(plan))
            if isinstance(self.ranking, RrfRanking):
                fuse(context, found, self.ranking)
            trace.rows = len(found)
        first = plan.offset or 0
        last = None if plan.limit is None else first + plan.limit
        best = context.scores[self.ranking].best_first()[first:last]
        context.guard.check_result(len(best))
        entities = Entities(TableKey.node(self.scan.type_name), best)
        rows = RowTable(len(best), {self.scan.variable: entities})
        with context.profile.operator("Return") as trace:
            columns = project(context, rows, plan.columns)
            trace.rows = rows.count
        return columns
