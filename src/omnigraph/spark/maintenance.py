"""Compaction and index segments as Spark tasks.

1. Tasks write files and return small records; the run that asked for them commits, through the same
   protocol, record and recovery as one in this process.
2. While tasks run, `__staging/<operation>.json` names the tables that they write to, so that no
   cleanup takes their files for leftovers.
3. An index of addresses is built in parts, over groups of fragments: a lookup asks all of them, so
   there are few. Text and vector indexes are built whole: the rank of a text or a vector depends on
   everything that the segment holds, so parts would give other results.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from omnigraph.maintenance.workers import SegmentPlan
from omnigraph.manifest.layout import MAIN_INCARNATION
from omnigraph.store import StoreSettings, open_store
from omnigraph.store.records import (
    CompactionResult,
    CompactionTask,
    DatasetVersion,
    IndexKind,
    WrittenIndexSegment,
)
from omnigraph.write.stage.staging_record import DatasetBase, StagingRecords

if TYPE_CHECKING:
    from omnigraph.manifest import Repository
    from omnigraph.spark.jobs import JobRunner
    from omnigraph.store.datasets import DatasetStore

SEGMENTS_MAX: Final = 8
"""The largest number of parts of one index."""
SEGMENT_ROWS_MIN: Final = 1_000_000
"""A part with fewer rows is not worth a task of its own."""
_PARTED: Final = frozenset({IndexKind.BTREE, IndexKind.BITMAP})


@dataclass(frozen=True)
class SparkWorkers:
    """Works as tasks of Spark jobs."""

    settings: StoreSettings
    datasets: DatasetStore
    jobs: JobRunner
    segment_rows_min: int = SEGMENT_ROWS_MIN
    name: str = "spark"

    def compact(self, tasks: Sequence[CompactionTask]) -> Sequence[CompactionResult]:
        return self.jobs.calls("compact", partial(_compact, self.settings), tasks)

    def index(
        self, at: DatasetVersion, plans: Sequence[SegmentPlan]
    ) -> Sequence[WrittenIndexSegment]:
        handle = self.datasets.open(at.location, branch=at.branch, version=at.version)
        rows_of = {one.fragment_id: one.rows for one in handle.fragments()}
        parts = [
            part
            for plan in plans
            for part in parts_of(plan, rows_of, rows_min=self.segment_rows_min)
        ]
        return self.jobs.calls("index", partial(_build, self.settings, at), parts)


@contextmanager
def spark_workers(repository: Repository, jobs: JobRunner) -> Iterator[SparkWorkers]:
    """Lend workers for one run of maintenance on `main`."""
    entries = repository.reader.latest(MAIN_INCARNATION).entries.values()
    bases = [
        DatasetBase(entry.location, entry.table_branch, entry.table_version) for entry in entries
    ]
    records = StagingRecords(repository.store.objects, repository.clock)
    with records.hold(repository.clock.ulid(), bases):
        store = repository.store
        yield SparkWorkers(store.settings, store.datasets, jobs)


def parts_of(
    plan: SegmentPlan, rows_of: Mapping[int, int], *, rows_min: int = SEGMENT_ROWS_MIN
) -> list[SegmentPlan]:
    """Cut a segment into parts that several tasks can build.

    >>> from omnigraph.store.records import IndexSpec
    >>> plan = SegmentPlan(IndexSpec("id", IndexKind.BTREE), (0, 1, 2))
    >>> [part.fragment_ids for part in parts_of(plan, {0: 5, 1: 5, 2: 5}, rows_min=10)]
    [(0, 1), (2,)]
    """
    if plan.spec.kind not in _PARTED:
        return [plan]
    rows = sum(rows_of[number] for number in plan.fragment_ids)
    wanted = max(rows_min, -(-rows // SEGMENTS_MAX))
    parts: list[list[int]] = []
    gathered = wanted
    for number in plan.fragment_ids:
        if gathered >= wanted:
            parts.append([])
            gathered = 0
        parts[-1].append(number)
        gathered += rows_of[number]
    return [SegmentPlan(plan.spec, tuple(part)) for part in parts]


# -- inside of tasks -------------------------------------------------------------------------------


def _compact(settings: StoreSettings, task: CompactionTask, _number: int) -> CompactionResult:
    return open_store(settings).datasets.run_compaction(task)


def _build(
    settings: StoreSettings, at: DatasetVersion, plan: SegmentPlan, _number: int
) -> WrittenIndexSegment:
    datasets = open_store(settings).datasets
    return datasets.write_index_segment(at, plan.spec, fragment_ids=plan.fragment_ids)
