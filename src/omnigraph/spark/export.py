"""Export as Spark tasks: each task writes one file."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from omnigraph.progress import Progress
from omnigraph.spark.jobs import Jobs
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
    files = jobs.calls("export", partial(_write, settings), plan.tasks)
    return finish_export(plan, files, engine="spark")


def _write(settings: StoreSettings, task: ExportTask, _number: int) -> ExportedFile:
    return write_part(task, open_store(settings).datasets)
