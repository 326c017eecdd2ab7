"""A plan that is one filtered scan whose columns are the answer: it needs no row table."""

from __future__ import annotations

from typing import Self

import pyarrow as pa

from omnigraph.dataclass import dataclass
from omnigraph.query.plan.plan import EntityId, NodeScan, PropertyValue, ReadPlan
from omnigraph.query.plan.print_plan import operator_line
from omnigraph.read.column_names import stored_column
from omnigraph.read.context import Context
from omnigraph.read.operators.scan import scan_columns


@dataclass(frozen=True, eq=False)
class ScanOnly:
    """One scan, and the stored columns that it returns."""

    context: Context
    scan: NodeScan
    names: tuple[str, ...]

    @classmethod
    def matching(cls, context: Context, plan: ReadPlan) -> Self | None:
        """Match a scan whose rows are returned as they come: not sorted, cut, grouped or merged.

        A scan without filters reads whole columns, which are worth caching. That is done by row
        id, so it takes the row pipeline.
        """
        if len(plan.pipeline) != 1 or plan.ranking is not None or plan.distinct or plan.order:
            return None
        scan = plan.pipeline[0]
        if not isinstance(scan, NodeScan) or not scan.filters:
            return None
        if plan.limit is not None or plan.offset is not None:
            return None
        names: list[str] = []
        for column in plan.columns:
            if not isinstance(value := column.expression, PropertyValue | EntityId):
                return None
            names.append(stored_column(value))
        return cls(context, scan, tuple(names))

    def run(self) -> list[pa.Array]:
        """Return the columns of the scan."""
        context = self.context
        context.guard.check()
        shown = operator_line(self.scan) if context.profile.is_on else ""
        with context.profile.operator(shown) as trace:
            found = scan_columns(context, self.scan, self.names)
            trace.rows = len(found[0])
        with context.profile.operator("Return") as trace:
            context.guard.check_result(len(found[0]))
            trace.rows = len(found[0])
        return found
