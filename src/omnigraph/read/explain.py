"""How a query would run and how it ran: records, and lines of text.

An explained operator has `estimated_rows`. A scan that a part of the pattern starts with has
`starts`: how many nodes each variable has that the part could start with, and how that is known.
Hops that are counted and not written out are `folded`; `batches` says in how many parts an
aggregate is made. A scan also has `pushed_filters` and
`residual_filters` as text and the `indexes` that the store may probe; an expansion its
`access_path`. A profiled one has the measured `rows` and `elapsed_ms`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from omnigraph.dataclass import dataclass
from omnigraph.names import TableKey
from omnigraph.query.plan.plan import (
    AntiJoin,
    Compare,
    Expand,
    Filter,
    InList,
    NodeScan,
    Operator,
    OptionalMatch,
    Predicate,
    Prefix,
    ReadPlan,
    RrfRanking,
    TextMatch,
)
from omnigraph.query.plan.print_plan import operator_line, predicate_text
from omnigraph.read.access.push_down import conjuncts, push_down
from omnigraph.read.column_names import stored_column
from omnigraph.read.context import Context
from omnigraph.read.operators.filter import stored_values
from omnigraph.read.planner import leading_part, possible_scans
from omnigraph.read.profile import NodeAccess, OperatorTrace

_FILTER_SHARE = 0.5


def explain_plan(
    context: Context, plan: ReadPlan, folded: frozenset[Operator] = frozenset()
) -> tuple[OperatorTrace, ...]:
    """Describe how a plan would run, with the operators that are folded.

    Filters are evaluated where that costs little; no other data is read.
    """
    traces, _ = _Explanation(context, plan, folded).pipeline(plan.pipeline, 1.0)
    return tuple(traces)


@dataclass(frozen=True, eq=False)
class _Explanation:
    _context: Context
    _plan: ReadPlan
    _folded: frozenset[Operator]

    def pipeline(
        self, pipeline: tuple[Operator, ...], rows: float
    ) -> tuple[list[OperatorTrace], float]:
        traces: list[OperatorTrace] = []
        for position, operator in enumerate(pipeline):
            trace, rows = self._operator(operator, rows)
            trace.details = {"estimated_rows": math.ceil(rows), **trace.details}
            if operator in self._folded:
                trace.details["folded"] = True
            starts = self._starts(pipeline[position:])
            if starts:
                trace.details["starts"] = starts
            traces.append(trace)
        return traces, rows

    def _operator(self, operator: Operator, rows: float) -> tuple[OperatorTrace, float]:
        trace = OperatorTrace(operator_line(operator))
        match operator:
            case NodeScan():
                trace.details = self._scan_details(operator)
                trace.access = self._access(operator)
                return trace, rows * self._scanned(operator)
            case Expand():
                chosen = self._context.adjacency.path(operator, round(rows))
                trace.details = {"access_path": chosen}
                if operator.target_filters:
                    trace.details |= self._filter_details(
                        operator.target_type, operator.target_filters
                    )
                probed = self._probed(operator.target_filters)
                trace.access = NodeAccess(operator.target_type, False, probed)
                return trace, rows * self._expanded(operator)
            case Filter():
                return trace, rows * _FILTER_SHARE
            case AntiJoin():
                trace.inner, _ = self.pipeline(operator.pipeline, rows)
                return trace, rows * _FILTER_SHARE
            case OptionalMatch():
                trace.inner, inner_rows = self.pipeline(operator.pipeline, rows)
                return trace, max(rows, inner_rows)

    def _starts(self, pipeline: tuple[Operator, ...]) -> list[str]:
        """Return the variables that a part could start with, and how many nodes each has."""
        part = leading_part(pipeline)
        if part is None or not part.expands:
            return []
        estimates = self._context.estimates
        found: list[str] = []
        for name, scan in possible_scans(part).items():
            rows = math.ceil(estimates.nodes(scan.type_name, scan.filters))
            origin = estimates.origin(scan.type_name, scan.filters)
            found.append(f"{name}: {rows} {origin}")
        return found

    def _access(self, scan: NodeScan) -> NodeAccess:
        ranking = self._plan.ranking
        arms = (ranking.first, ranking.second) if isinstance(ranking, RrfRanking) else (ranking,)
        ranked = [arm.property for arm in arms if arm is not None and arm.variable == scan.variable]
        return NodeAccess(scan.type_name, True, (*self._probed(scan.filters), *ranked))

    def _probed(self, filters: tuple[Predicate, ...]) -> tuple[str, ...]:
        """Return the columns of pushed predicates that an index can answer."""
        pushed, _ = self._split(filters)
        probing = [
            predicate
            for predicate in pushed
            if isinstance(predicate, TextMatch | Prefix)
            or (isinstance(predicate, Compare) and predicate.operator != "!=")
            or (isinstance(predicate, InList) and not predicate.negated)
        ]
        return tuple(stored_column(value) for value in stored_values(probing))

    def _scanned(self, scan: NodeScan) -> float:
        found = self._context.estimates.nodes(scan.type_name, scan.filters)
        is_ranked = self._plan.ranking is not None and self._plan.ranking.variable == scan.variable
        if is_ranked and self._plan.candidates is not None:
            return min(found, float(self._plan.candidates))
        return found

    def _expanded(self, expand: Expand) -> float:
        estimates = self._context.estimates
        everything = max(estimates.everything(expand.target_type), 1.0)
        passing = estimates.nodes(expand.target_type, expand.target_filters)
        return estimates.fanout(expand) * passing / everything

    def _scan_details(self, scan: NodeScan) -> dict[str, object]:
        details: dict[str, object] = {"columns": list(scan.properties)}
        return details | self._filter_details(scan.type_name, scan.filters)

    def _filter_details(self, type_name: str, filters: tuple[Predicate, ...]) -> dict[str, object]:
        pushed, residual = self._split(filters)
        return {
            "pushed_filters": [predicate_text(predicate) for predicate in pushed],
            "residual_filters": [predicate_text(predicate) for predicate in residual],
            "indexes": self._indexes(type_name, filters),
        }

    def _split(self, filters: tuple[Predicate, ...]) -> tuple[list[Predicate], list[Predicate]]:
        pushed: list[Predicate] = []
        residual: list[Predicate] = []
        for predicate in conjuncts(filters):
            goes_down = isinstance(predicate, TextMatch) or push_down(
                predicate, self._context.bindings
            )
            (pushed if goes_down else residual).append(predicate)
        return pushed, residual

    def _indexes(self, type_name: str, filters: Iterable[Predicate]) -> list[str]:
        columns = {stored_column(value) for value in stored_values(filters)}
        if not columns:
            return []
        handle = self._context.tables.handle(TableKey.node(type_name))
        return [index.name for index in handle.indexes() if columns & set(index.columns)]


def trace_lines(traces: Iterable[OperatorTrace], indent: str = "") -> list[str]:
    """Return traces as lines of text, inner ones indented."""
    lines: list[str] = []
    for trace in traces:
        facts = {**trace.details}
        if trace.rows is not None:
            facts["rows"] = trace.rows
        if trace.elapsed_ms is not None:
            facts["elapsed_ms"] = trace.elapsed_ms
        shown = ", ".join(f"{name}={_shown(value)}" for name, value in facts.items() if value != [])
        lines.append(f"{indent}{trace.operator}" + (f"  ({shown})" if shown else ""))
        lines += trace_lines(trace.inner, indent + "  ")
    return lines


def _shown(value: object) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(str(item) for item in value) + "]"
    return str(value)
