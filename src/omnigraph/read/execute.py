"""Runs a read plan on one snapshot.

The steps: arrange the pipeline, run its operators over a table of row ids, fuse a fused ranking,
then group or de-duplicate or sort, cut, and fetch what is returned.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from omnigraph.clock import Clock
from omnigraph.manifest import Snapshot
from omnigraph.names import TableKey
from omnigraph.query.bindings import Bindings
from omnigraph.query.plan.plan import (
    AntiJoin,
    Bm25Ranking,
    EntityId,
    Expand,
    Filter,
    NearestRanking,
    NodeScan,
    Operator,
    OptionalMatch,
    PropertyValue,
    Ranking,
    ReadPlan,
    RrfRanking,
    SameId,
    Score,
)
from omnigraph.read.access.column_cache import ColumnCache
from omnigraph.read.access.paths import PathChooser, Spent, TraversalSettings
from omnigraph.read.access.tables import TableReader
from omnigraph.read.access.text import StoreTextMatcher
from omnigraph.read.columns import ID, stored_column
from omnigraph.read.context import Context, Embed
from omnigraph.read.explain import describe, explain_plan
from omnigraph.read.limits import NO_LIMITS, Guard, Limits
from omnigraph.read.liveness import ignores_repeats, live_after, result_variables
from omnigraph.read.operators.aggregate import GroupedResult, distinct_result
from omnigraph.read.operators.anti_join import anti_join
from omnigraph.read.operators.expand import close_cycle, expand_rows
from omnigraph.read.operators.filter import filter_rows
from omnigraph.read.operators.fold import fold_hop, foldable
from omnigraph.read.operators.join import cross_join
from omnigraph.read.operators.optional import optional_match
from omnigraph.read.operators.order import order_result, order_rows
from omnigraph.read.operators.project import project, values_of
from omnigraph.read.operators.rank import fuse, ranked_scan
from omnigraph.read.operators.scan import scan_columns, scan_nodes
from omnigraph.read.planner import Statistics, arrange
from omnigraph.read.profile import Profile
from omnigraph.read.result import QueryResult, Target
from omnigraph.read.rows import (
    ONE_ROW,
    Entities,
    Positions,
    RowTable,
    distinct_rows,
    is_ascending,
)
from omnigraph.search.coverage import IndexFacts
from omnigraph.search.text.indexes import TextIndexes
from omnigraph.search.topology.cache import Topologies


@dataclass(frozen=True, eq=False)
class ReadRequest:
    """One read: what to run, on what, with which values and limits."""

    plan: ReadPlan
    snapshot: Snapshot
    bindings: Bindings
    target: Target
    limits: Limits = NO_LIMITS
    embed: Embed | None = None
    cancelled: threading.Event | None = None
    explain: bool = False
    profile: bool = False


@dataclass(frozen=True, eq=False)
class Executor:
    """Runs reads of one graph. Safe to share between threads."""

    topologies: Topologies
    clock: Clock
    settings: TraversalSettings | None = None
    """None reads the environment for each query."""
    indexes: IndexFacts = field(default_factory=IndexFacts)
    columns: ColumnCache = field(default_factory=ColumnCache)
    texts: TextIndexes = field(default_factory=TextIndexes)
    spent: Spent = field(default_factory=Spent)
    folds: bool = True
    """Whether the last hop of an aggregate may be counted without writing it out."""

    def run(self, request: ReadRequest) -> QueryResult:
        """Answer a read, or with `explain` say how it would be answered."""
        context = self._context(request)
        plan = arrange(request.plan, _statistics(context), request.bindings)
        if request.explain and not request.profile:
            return replace(
                _result(request, plan, _no_rows(plan)), estimates=explain_plan(context, plan)
            )
        began_s = self.clock.monotonic_s()
        columns = _Run(context, plan).columns()
        elapsed_ms = round((self.clock.monotonic_s() - began_s) * 1000, 3)
        found = _result(request, plan, columns, elapsed_ms)
        if not request.profile:
            return found
        measured = tuple(context.profile.traces)
        return replace(found, estimates=explain_plan(context, plan), measured=measured)

    def _context(self, request: ReadRequest) -> Context:
        guard = Guard(request.limits, self.clock, request.cancelled)
        tables = TableReader(request.snapshot, guard, self.columns)
        profile = Profile(self.clock, is_on=request.profile)
        return Context(
            tables=tables,
            bindings=request.bindings,
            guard=guard,
            adjacency=PathChooser(
                tables, self.topologies, self.indexes, self.settings, guard, profile, self.spent
            ),
            texts=StoreTextMatcher(tables, self.indexes, self.texts),
            profile=profile,
            indexes=self.indexes,
            folds=self.folds,
            embed=request.embed,
        )


def _statistics(context: Context) -> Statistics:
    return Statistics(context.tables.row_count)


def _no_rows(plan: ReadPlan) -> list[pa.Array]:
    return [pa.array([], column.prop_type.arrow_type) for column in plan.columns]


def _result(
    request: ReadRequest,
    plan: ReadPlan,
    columns: list[pa.Array],
    elapsed_ms: float | None = None,
) -> QueryResult:
    return QueryResult(
        query_name=plan.name,
        columns=plan.columns,
        arrays=tuple(columns),
        target=request.target,
        graph_commit_id=request.snapshot.commit_id,
        elapsed_ms=elapsed_ms,
    )


@dataclass(eq=False)
class _Run:
    """One plan that is running."""

    context: Context
    plan: ReadPlan
    _is_set: bool = False

    def columns(self) -> list[pa.Array]:
        shown = _shown_by_scan(self.plan)
        if shown is not None:
            return self._scanned(*shown)
        ranked = _shown_by_rank(self.plan)
        if ranked is not None:
            return self._ranked(*ranked)
        self._is_set = ignores_repeats(self.plan)
        folded = None if self._is_set or not self.context.folds else foldable(self.plan)
        if folded is not None:
            return self._folded(folded)
        rows = self._pipeline(self.plan.pipeline, ONE_ROW, result_variables(self.plan))
        if isinstance(self.plan.ranking, RrfRanking):
            fuse(self.context, rows.row_ids(self.plan.ranking.variable), self.plan.ranking)
        with self.context.profile.operator("Return") as trace:
            found = self._returned(rows)
            trace.rows = len(found[0])
        self.context.guard.check_result(len(found[0]))
        return found

    def _scanned(self, scan: NodeScan, names: tuple[str, ...]) -> list[pa.Array]:
        """Answer with the columns of a scan: no row table is needed."""
        self.context.guard.check()
        shown = describe(scan) if self.context.profile.is_on else ""
        with self.context.profile.operator(shown) as trace:
            found = scan_columns(self.context, scan, names)
            trace.rows = len(found[0])
        with self.context.profile.operator("Return") as trace:
            self.context.guard.check_result(len(found[0]))
            trace.rows = len(found[0])
        return found

    def _ranked(self, scan: NodeScan, ranking: Ranking) -> list[pa.Array]:
        """Answer with the best nodes of a scan: a ranking says their order, ties included."""
        plan, table_key = self.plan, TableKey.node(scan.type_name)
        self.context.guard.check()
        shown = describe(scan) if self.context.profile.is_on else ""
        with self.context.profile.operator(shown) as trace:
            found = ranked_scan(self.context, scan, ranking, _candidates(plan))
            if isinstance(ranking, RrfRanking):
                fuse(self.context, found, ranking)
            trace.rows = len(found)
        first = plan.offset or 0
        last = None if plan.limit is None else first + plan.limit
        best = self.context.scores[ranking].best_first()[first:last]
        self.context.guard.check_result(len(best))
        rows = RowTable(len(best), {scan.variable: Entities(table_key, best)})
        with self.context.profile.operator("Return") as trace:
            columns = project(self.context, rows, plan.columns)
            trace.rows = rows.count
        return columns

    def _folded(self, plan: ReadPlan) -> list[pa.Array]:
        """Run all but the last hop, and count what that one reaches; else write it out."""
        self.plan = plan
        *before, hop = plan.pipeline
        wanted = result_variables(plan)
        source = hop.source if isinstance(hop, Expand) else ""
        rows = self._pipeline(tuple(before), ONE_ROW, wanted | {source})
        shown = describe(hop) if self.context.profile.is_on else ""
        with self.context.profile.operator(shown) as trace:
            folded = fold_hop(self.context, rows, plan)
            trace.rows = rows.count if folded is None else int(folded[1].counts.sum())
            self.context.profile.note(folded=folded is not None)
        if folded is None:
            rows, counted = self._pipeline((hop,), rows, wanted), None
        else:
            rows, counted = folded
        with self.context.profile.operator("Return") as trace:
            found = self._grouped(GroupedResult(self.context, rows, plan, counted))
            trace.rows = len(found[0])
        self.context.guard.check_result(len(found[0]))
        return found

    def _returned(self, rows: RowTable) -> list[pa.Array]:
        if self.plan.is_aggregate:
            return self._grouped(GroupedResult(self.context, rows, self.plan))
        if self.plan.distinct:
            return self._distinct(distinct_result(self.context, rows, self.plan))
        kept = order_rows(self.context, rows, self.plan)
        self.context.guard.check_result(kept.count)
        return project(self.context, kept, self.plan.columns)

    def _grouped(self, groups: GroupedResult) -> list[pa.Array]:
        kept = order_result(groups.count, self.plan, groups.column)
        self.context.guard.check_result(len(kept))
        return [groups.column(index, kept) for index in range(len(self.plan.columns))]

    def _distinct(self, rows: RowTable) -> list[pa.Array]:
        def column_at(index: int, positions: Positions) -> pa.Array:
            value = self.plan.columns[index].expression
            return values_of(self.context, rows.at(positions), value)

        kept = rows.at(order_result(rows.count, self.plan, column_at))
        self.context.guard.check_result(kept.count)
        return project(self.context, kept, self.plan.columns)

    # -- the pipeline ---------------------------------------------------------------------------

    def _inner(self, pipeline: tuple[Operator, ...], rows: RowTable) -> RowTable:
        """Run the pipeline of a block: what it makes is looked at by the operator around it."""
        return self._pipeline(pipeline, rows, None)

    def _pipeline(
        self, pipeline: tuple[Operator, ...], rows: RowTable, wanted: frozenset[str] | None
    ) -> RowTable:
        live = None if wanted is None else live_after(pipeline, wanted)
        position = 0
        while position < len(pipeline):
            operator = pipeline[position]
            closed = _closed_variable(pipeline, position)
            self.context.guard.check()
            shown = describe(operator) if self.context.profile.is_on else ""
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
        """Forget what nobody needs, and merge rows that became equal where that changes nothing."""
        dead = rows.entities.keys() - live
        if not dead:
            return rows
        kept = rows.without(*dead)
        if not self._is_set or rows.count <= 1:
            return kept
        if kept.width == 1 and is_ascending(next(iter(kept.entities.values())).row_ids):
            return kept
        return kept.at(np.sort(distinct_rows(kept)[0]))

    def _operator(
        self, operator: Operator, rows: RowTable, live: frozenset[str] | None
    ) -> RowTable:
        match operator:
            case NodeScan():
                return self._scan(operator, rows)
            case Expand():
                is_set = live is not None and self._is_set
                wanted = frozenset() if live is None else live
                return expand_rows(self.context, rows, operator, wanted, is_set=is_set)
            case Filter(predicate):
                return filter_rows(self.context, rows, (predicate,))
            case AntiJoin():
                return anti_join(self.context, rows, operator, self._inner)
            case OptionalMatch():
                return optional_match(self.context, rows, operator, self._inner)

    def _scan(self, scan: NodeScan, rows: RowTable) -> RowTable:
        ranking = self.plan.ranking
        if ranking is not None and scan.variable == ranking.variable:
            found = ranked_scan(self.context, scan, ranking, _candidates(self.plan))
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


def _shown_by_scan(plan: ReadPlan) -> tuple[NodeScan, tuple[str, ...]] | None:
    """Return the only scan of a plan and what it shows, when the result is nothing but that.

    Rows must come as they are: not sorted, cut, grouped or merged. Without filters the columns are
    worth keeping, which is done by row id.
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
    return scan, tuple(names)


def _shown_by_rank(plan: ReadPlan) -> tuple[NodeScan, Ranking] | None:
    """Return the only scan of a plan and its ranking, when that alone decides the order."""
    ranking = plan.ranking
    if ranking is None or len(plan.pipeline) != 1 or plan.is_aggregate or plan.distinct:
        return None
    scan, first = plan.pipeline[0], plan.order[0]
    if not isinstance(scan, NodeScan) or first.expression != Score(ranking):
        return None
    is_best_first = first.descending is not isinstance(ranking, NearestRanking)
    if not is_best_first or not all(key.implicit for key in plan.order[1:]):
        return None
    return scan, ranking


def _candidates(plan: ReadPlan) -> int | None:
    """Return how many of the best nodes are enough; None when all that have a rank are needed.

    Without hops, and with nothing but the relevance and then ids to sort by, the page is all.
    """
    is_plain = len(plan.pipeline) == 1 and not plan.is_aggregate and not plan.distinct
    if plan.candidates is not None or not is_plain or plan.limit is None:
        return plan.candidates
    if not isinstance(plan.ranking, Bm25Ranking) or not plan.order[0].descending:
        return None
    if not all(key.implicit for key in plan.order[1:]):
        return None
    return plan.limit + (plan.offset or 0)


def _closed_variable(pipeline: tuple[Operator, ...], position: int) -> str | None:
    """Return the variable that an expansion into a temporary is compared with right after it."""
    expand = pipeline[position]
    if not isinstance(expand, Expand) or expand.edge_variable is not None or expand.target_filters:
        return None
    follower = pipeline[position + 1] if position + 1 < len(pipeline) else None
    if isinstance(follower, Filter) and isinstance(follower.predicate, SameId):
        same = follower.predicate
        if same.right == expand.target and "@" in same.right:
            return same.left
    return None
