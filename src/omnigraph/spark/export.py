"""Export as Spark tasks: each task writes one file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from omnigraph.spark.jobs import Jobs
from omnigraph.spark.progress import Progress
from omnigraph.store import StoreSettings, open_store
from omnigraph.write.export.exporter import (
    ExportedFile,
    ExportPlan,
    ExportResult,
    ExportTask,
    begin_export,
    finish_export,
    write_part,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def export_on_spark(
    plan: ExportPlan,
    settings: StoreSettings,
    spark: SparkSession,
    *,
    progress: Progress | None = None,
) -> ExportResult:
    """Run an export on Spark; its folder must be one that driver and workers share."""
    begin_export(plan)
    jobs = Jobs(spark, tag=f"omnigraph-export-{plan.commit_id}", progress=progress or Progress())
    files = jobs.calls("export", _Writer(settings), plan.tasks)
    return finish_export(plan, files, engine="spark")


@dataclass(frozen=True)
class _Writer:
    """What tasks need besides their own part."""

    settings: StoreSettings

    def __call__(self, task: ExportTask, number: int) -> ExportedFile:  # noqa: ARG002 - the file has its number in its name
        return write_part(task, open_store(self.settings).datasets)
