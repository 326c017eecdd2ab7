"""Who rewrites fragments and builds index segments: this process, or tasks elsewhere.

Both are pure additions: new files that nothing refers to until the run commits. So they may run
anywhere, several times, and be thrown away; what counts is what comes back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from omnigraph.dataclass import dataclass
from omnigraph.store.datasets import DatasetStore
from omnigraph.store.records import (
    CompactionResult,
    CompactionTask,
    DatasetVersion,
    IndexSpec,
    WrittenIndexSegment,
)


@dataclass(frozen=True)
class SegmentPlan:
    """One segment to build: which index, over which fragments."""

    spec: IndexSpec
    fragment_ids: tuple[int, ...]


class MaintenanceWorkers(Protocol):
    """Does the heavy part of maintenance."""

    @property
    def name(self) -> str:
        """The engine, as results call it."""
        ...

    def compact(self, tasks: Sequence[CompactionTask]) -> Sequence[CompactionResult]:
        """Rewrite fragments."""
        ...

    def index(
        self, at: DatasetVersion, plans: Sequence[SegmentPlan]
    ) -> Sequence[WrittenIndexSegment]:
        """Build index segments over a version; together they cover what the plans name."""
        ...


@dataclass(frozen=True)
class LocalWorkers:
    """Works in this process, one piece after another."""

    datasets: DatasetStore
    name: str = "local"

    def compact(self, tasks: Sequence[CompactionTask]) -> Sequence[CompactionResult]:
        return [self.datasets.run_compaction(task) for task in tasks]

    def index(
        self, at: DatasetVersion, plans: Sequence[SegmentPlan]
    ) -> Sequence[WrittenIndexSegment]:
        return [
            self.datasets.write_index_segment(at, plan.spec, fragment_ids=plan.fragment_ids)
            for plan in plans
        ]
