"""The engine `spark` without Spark: the same tasks, run one after another by this process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pytest

from omnigraph import engine
from omnigraph.manifest import Repository, Snapshot
from omnigraph.spark.engine import SparkEngine
from omnigraph.spark.maintenance import SparkWorkers, spark_workers
from omnigraph.spark.merge import MergeTuning, SparkMergeWorkers, spark_merge_workers
from support.inline_jobs import InlineJobs

SMALL = MergeTuning(bucket_rows=2, rows_min=0, written_rows=3)


class InlineEngine(SparkEngine):
    """Runs tasks in this process, and cuts work into as many as there can be."""

    def __init__(self, jobs: InlineJobs | None = None) -> None:
        super().__init__()
        self.jobs = jobs or InlineJobs()

    def problem(self) -> str | None:
        return None

    @contextmanager
    def merge_workers(
        self, repository: Repository, snapshots: Sequence[Snapshot], *, session: object | None
    ) -> Iterator[SparkMergeWorkers]:
        del session
        with spark_merge_workers(repository, snapshots, self.jobs) as workers:
            yield replace(workers, tuning=SMALL)

    @contextmanager
    def maintenance_workers(
        self, repository: Repository, *, session: object | None, shows_progress: bool
    ) -> Iterator[SparkWorkers]:
        del session, shows_progress
        with spark_workers(repository, self.jobs) as workers:
            yield replace(workers, segment_rows_min=2)


def take_everything(patch: pytest.MonkeyPatch) -> InlineEngine:
    """Let `auto` choose tasks for everything that has a size."""
    inline = InlineEngine()
    patch.setitem(engine._engines, inline.name, inline)
    patch.setenv("OMNIGRAPH_SPARK_MIN_BYTES", "0")
    return inline
