"""The difference of two snapshots as a frame.

Only fragments that differ are read, each by one task; the rows come back as a lazy frame.
Reading it in order holds one partition in memory at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import orjson

from omnigraph.changes.commit_changes import type_identity
from omnigraph.changes.diff import changed_pairs, views_of
from omnigraph.changes.selection import Op, Selection
from omnigraph.changes.table_changes import DifferingFragments, differing_fragments
from omnigraph.spark.diff_tasks import (
    CHANGES,
    CandidateTask,
    CompareCandidates,
    DiffTable,
    ReadCandidates,
    candidate_frame,
)
from omnigraph.spark.source.tables import grouped_by_rows
from omnigraph.spark.types import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from omnigraph.manifest import Snapshot
    from omnigraph.store import StoreSettings
BUCKET_ROWS: Final = 250_000
"""How many candidates of both sides one task compares."""


@dataclass(frozen=True)
class DiffPlan:
    """What tasks have to read and compare."""

    settings: StoreSettings
    selection: Selection
    tables: tuple[DiffTable, ...]
    tasks: tuple[CandidateTask, ...]
    data_bytes: int

    @property
    def buckets(self) -> int:
        """How many tasks compare."""
        return sum(table.buckets for table in self.tables)

    @property
    def reader(self) -> ReadCandidates:
        """What the tasks of the first kind do."""
        return ReadCandidates(self.settings, self.tables, self.tasks)

    @property
    def comparer(self) -> CompareCandidates:
        """What the tasks of the second kind do."""
        return CompareCandidates(self.settings, self.tables, self.selection)


def plan_diff(
    before: Snapshot,
    after: Snapshot,
    selection: Selection,
    settings: StoreSettings,
    *,
    bucket_rows: int = BUCKET_ROWS,
) -> DiffPlan:
    """Find the fragments that differ, from the manifests alone."""
    tables: list[DiffTable] = []
    tasks: list[CandidateTask] = []
    size = first = 0
    for pair in changed_pairs(before, after):
        if not selection.takes_type(pair.table_key):
            continue
        differing = differing_fragments(*views_of(pair, before, after))
        if not differing.rows:
            continue
        buckets = -(-differing.rows // bucket_rows)
        type_id = type_identity(after, pair.entity_type)
        tasks += candidate_tasks(len(tables), differing)
        tables.append(
            DiffTable(pair.entity_type, type_id, *pair.versions, first, buckets, pair.sides)
        )
        first += buckets
        size += differing.data_bytes
    return DiffPlan(settings, selection, tuple(tables), tuple(tasks), size)


def diff_frame(plan: DiffPlan, spark: SparkSession) -> DataFrame:
    """Return what differs as a lazy frame."""
    columns = spark_schema(CHANGES)
    if not plan.tasks:
        return spark.createDataFrame([], columns)
    together = candidate_frame(spark, plan.reader, plan.buckets)
    return together.mapInArrow(plan.comparer, columns)


def ordered_changes(frame: DataFrame) -> Iterator[dict[str, Any]]:
    """Yield what differs, in the order and the form of `omnigraph.changes.commit_changes`."""
    from pyspark.sql import functions  # noqa: PLC0415 - an optional library

    rank = functions.array_position(functions.array(*map(functions.lit, map(str, Op))), frame["op"])
    is_edge = frame["entity_kind"] == "edge"
    for row in frame.orderBy(is_edge, "type_id", "id", rank).toLocalIterator():
        change: dict[str, Any] = {
            "kind": row["entity_kind"],
            "type": {"id": row["type_id"], "name": row["type_name"]},
            "id": row["id"],
            "op": row["op"],
        }
        for side in ("before", "after"):
            if row[side] is not None:
                change[side] = orjson.loads(row[side])
        yield change


# -- inside ----------------------------------------------------------------------------------------


def candidate_tasks(table: int, differing: DifferingFragments) -> Iterator[CandidateTask]:
    """Give each fragment, or pair of them, to one task; small ones share it."""
    for ids in grouped_by_rows(differing.only_before):
        yield CandidateTask(table, before_ids=ids)
    for ids in grouped_by_rows(differing.only_after):
        yield CandidateTask(table, after_ids=ids)
    pairs = {new.fragment_id: (old, new) for old, new in differing.moved}
    for ids in grouped_by_rows([new for _, new in differing.moved]):
        yield CandidateTask(table, moved=tuple(pairs[number] for number in ids))
