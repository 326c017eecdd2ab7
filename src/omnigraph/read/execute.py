"""Runs a read plan on one snapshot: arrange its operators, choose its shape, run that."""

from __future__ import annotations

import threading
from collections.abc import Collection
from dataclasses import field, replace
from typing import Final, TypeAlias

import pyarrow as pa

from omnigraph.cache import BoundedCounter
from omnigraph.clock import Clock
from omnigraph.dataclass import dataclass
from omnigraph.manifest import Snapshot
from omnigraph.query.bindings import Bindings
from omnigraph.query.plan.plan import OutputColumn, ReadPlan
from omnigraph.read.access.column_cache import ColumnCache
from omnigraph.read.access.path_chooser import (
    STATES_MAX,
    PathChooser,
    TraversalSettings,
    ends_of,
)
from omnigraph.read.access.table_reader import TableReader
from omnigraph.read.access.text_matcher import TextMatcher
from omnigraph.read.context import ROWS_AT_ONCE, Context, Embed
from omnigraph.read.explain import explain_plan
from omnigraph.read.limits import NO_LIMITS, Guard, Limits
from omnigraph.read.operators.measure import measured_nodes
from omnigraph.read.planner import arrange
from omnigraph.read.profile import OperatorTrace, Profile
from omnigraph.read.result import QueryResult, ResultObject, Target
from omnigraph.read.shapes.batched_aggregate import BatchedAggregate
from omnigraph.read.shapes.folded_aggregate import FoldedAggregate
from omnigraph.read.shapes.rank_only import RankOnly
from omnigraph.read.shapes.row_pipeline import RowPipeline
from omnigraph.read.shapes.scan_only import ScanOnly
from omnigraph.search.coverage import IndexFacts
from omnigraph.search.text.indexes import TextIndexes
from omnigraph.search.topology.cache import Topologies, table_keys

Shape: TypeAlias = ScanOnly | RankOnly | BatchedAggregate | FoldedAggregate | RowPipeline

SHAPES: Final[tuple[type[Shape], ...]] = (
    ScanOnly,
    RankOnly,
    BatchedAggregate,
    FoldedAggregate,
    RowPipeline,
)
"""The ways to run a plan, the most special first; the last one runs every plan."""


def shape_of(context: Context, plan: ReadPlan) -> Shape:
    """Return the first shape that a plan matches."""
    for shape in SHAPES:
        found = shape.matching(context, plan)
        if found is not None:
            return found
    raise AssertionError("the last shape matches every plan")


@dataclass(frozen=True)
class ReadOptions:
    """Limits and extras of one read."""

    limits: Limits = NO_LIMITS
    explain: bool = False
    profile: bool = False
    cancelled: threading.Event | None = None
    """Set it from another thread to stop the read."""


@dataclass(frozen=True, eq=False)
class ReadRequest:
    """One read: what to run, on what, with which values and limits."""

    plan: ReadPlan
    snapshot: Snapshot
    bindings: Bindings
    target: Target
    options: ReadOptions = ReadOptions()
    embed: Embed | None = None


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
    spent: BoundedCounter = field(default_factory=lambda: BoundedCounter(STATES_MAX))
    folds: bool = True
    """Whether the last hop of an aggregate may be counted without writing it out."""

    rows_at_once: int = ROWS_AT_ONCE
    """An aggregate over more rows than this is made in batches."""

    def run(self, request: ReadRequest) -> QueryResult:
        """Return the result, or with `explain` only how it would be computed."""
        context = self.context(request)
        plan = arrange(request.plan, context.estimates)
        shape = shape_of(context, plan)
        if request.options.explain and not request.options.profile:
            found = _result(request, plan, _no_rows(plan))
            return replace(found, estimates=_explained(context, plan, shape))
        began_s = self.clock.monotonic_s()
        columns = shape.run()
        elapsed_ms = round((self.clock.monotonic_s() - began_s) * 1000, 3)
        found = _result(request, plan, columns, elapsed_ms)
        if not request.options.profile:
            return found
        measured = tuple(context.profile.traces)
        return replace(found, estimates=_explained(context, plan, shape), measured=measured)

    def forget(self) -> None:
        """Drop everything from memory that makes reads faster."""
        self.topologies.forget()
        self.columns.forget()
        self.texts.forget()

    def prepare(self, snapshot: Snapshot, written: Collection[str]) -> None:
        """Lay the written tables of a new snapshot over what is in memory of earlier ones."""
        guard = Guard(NO_LIMITS, self.clock)
        tables = TableReader(snapshot, guard, self.columns, self.topologies.deltas)
        present = [key for key in written if key in snapshot.entries]
        for key in present:
            tables.prepare(key)
        if not self.topologies.nbytes:
            return
        for edge in snapshot.catalog.edge_types.values():
            if any(key in present for key in table_keys(edge)):
                self.topologies.prepare(snapshot, edge, ends_of(tables, edge))

    def context(self, request: ReadRequest) -> Context:
        """Return everything that the operators of a read share."""
        guard = Guard(request.options.limits, self.clock, request.options.cancelled)
        tables = TableReader(request.snapshot, guard, self.columns, self.topologies.deltas)
        profile = Profile(self.clock, is_on=request.options.profile)
        return Context(
            tables=tables,
            bindings=request.bindings,
            guard=guard,
            adjacency=PathChooser(
                tables, self.topologies, self.indexes, self.settings, guard, profile, self.spent
            ),
            texts=TextMatcher(tables, self.indexes, self.texts),
            profile=profile,
            indexes=self.indexes,
            folds=self.folds,
            embed=request.embed,
            rows_at_once=self.rows_at_once,
            measure=measured_nodes,
        )


def _explained(context: Context, plan: ReadPlan, shape: Shape) -> tuple[OperatorTrace, ...]:
    if isinstance(shape, FoldedAggregate | BatchedAggregate):
        split = shape.split
        plan = replace(plan, pipeline=(*split.kept, *split.folded))
        traces = explain_plan(context, plan, frozenset(split.folded))
        if isinstance(shape, BatchedAggregate):
            traces[0].details["batches"] = shape.batches
        return traces
    return explain_plan(context, plan)


def _no_rows(plan: ReadPlan) -> list[pa.Array]:
    return [pa.array([], column.prop_type.arrow_type) for column in plan.columns]


def _result(
    request: ReadRequest,
    plan: ReadPlan,
    columns: list[pa.Array],
    elapsed_ms: float | None = None,
) -> QueryResult:
    shown, arrays = _with_objects(plan, columns)
    return QueryResult(
        query_name=plan.name,
        columns=shown,
        arrays=arrays,
        target=request.target,
        graph_commit_id=request.snapshot.commit_id,
        elapsed_ms=elapsed_ms,
    )


def _with_objects(
    plan: ReadPlan, arrays: list[pa.Array]
) -> tuple[tuple[OutputColumn | ResultObject, ...], tuple[pa.Array, ...]]:
    """Put the columns that are fields of one object together."""
    if not plan.objects:
        return plan.columns, tuple(arrays)
    shown: list[OutputColumn | ResultObject] = []
    found: list[pa.Array] = []
    position = 0
    for each in plan.objects:
        shown += plan.columns[position : each.start]
        found += arrays[position : each.start]
        one = ResultObject(each.header, plan.columns[each.start : each.stop])
        absent = None if each.presence is None else arrays[each.presence].is_null()
        shown.append(one)
        found.append(one.array(arrays[each.start : each.stop], absent))
        position = each.stop
    return (*shown, *plan.columns[position:]), (*found, *arrays[position:])
