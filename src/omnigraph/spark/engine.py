"""Spark as an engine for bulk work; importing this module registers it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, cast

from omnigraph.engine import (
    DiffRequest,
    EngineMissingError,
    FrameRequest,
    LoadRequest,
    register,
)
from omnigraph.progress import Progress
from omnigraph.schema.values.converted import ConversionMode
from omnigraph.spark.diff import diff_frame, ordered_changes, plan_diff
from omnigraph.spark.export import export_on_spark
from omnigraph.spark.jobs import Jobs
from omnigraph.spark.load.inputs import plan_lines, plan_tables, plan_values
from omnigraph.spark.load.workers import SparkSource, Tuning, load_on_spark
from omnigraph.spark.maintenance import spark_workers
from omnigraph.spark.merge import spark_merge_workers
from omnigraph.spark.progress import classic_parallelism
from omnigraph.spark.session import get_spark, java_problem
from omnigraph.spark.source.frames import PinnedGraph, graphframe, to_spark
from omnigraph.write.load.formats.description import is_description, spark_reason
from omnigraph.write.load.formats.files import InputFile
from omnigraph.write.load.input.source import record_files
from omnigraph.write.load.options import LoadOptionsError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from omnigraph.maintenance.workers import MaintenanceWorkers
    from omnigraph.manifest import Repository, Snapshot
    from omnigraph.merge.workers import MergeWorkers
    from omnigraph.write.export.exporter import ExportPlan, ExportResult
    from omnigraph.write.load.result import LoadResult

_PARALLELISM: Final = "spark.default.parallelism"
_ORDERS_TABLES: Final = "`order_by` is for tables of Spark: the rows of a file have an order"


class SparkEngine:
    """Runs bulk work on a Spark session."""

    name = "spark"

    def __init__(self, tuning: Tuning | None = None) -> None:
        self.tuning = tuning or Tuning()

    def problem(self) -> str | None:
        """Return why Spark cannot start here, or None."""
        if find_spec("pyspark") is None:
            return "PySpark is not installed: pip install 'omnigraph[spark]'"
        return java_problem()

    def is_running(self) -> bool:
        """Whether this process has a session, classic or of Connect."""
        from pyspark.sql import SparkSession  # noqa: PLC0415 - an optional library

        return SparkSession.getActiveSession() is not None

    def load(self, request: LoadRequest) -> LoadResult:
        """Load on the caller's session, or on one that is found or started."""
        spark = session_of(request)
        progress = Progress(sys.stderr if request.shows_progress else None, request.report)
        operation_id = request.repository.clock.ulid()
        tag = f"omnigraph-{operation_id}"
        jobs = Jobs(spark, tag=tag, progress=progress, cancelled=request.cancelled)
        return load_on_spark(
            request.repository,
            request.committer,
            source_of(request, spark),
            request.options,
            jobs,
            operation_id=operation_id,
            tuning=self.tuning,
            embedder=request.embedder,
        )

    def frame(self, request: FrameRequest) -> Any:
        """Return a DataFrame of one type, or a GraphFrame of everything."""
        spark = spark_session(request.session)
        pinned = PinnedGraph(request.repository.store.settings, request.snapshot)
        if request.subject is None:
            return graphframe(pinned, spark, edges=request.edges)
        return to_spark(
            pinned, spark, request.subject, columns=request.columns, where=request.where
        )

    def changes(self, request: DiffRequest) -> Iterator[dict[str, Any]]:
        """Yield what differs, one partition of it at a time in the driver."""
        return ordered_changes(self.changes_frame(request))

    def changes_frame(self, request: DiffRequest) -> DataFrame:
        """Return what differs as a DataFrame."""
        spark = get_spark() if request.session is None else spark_session(request.session)
        settings = request.repository.store.settings
        plan = plan_diff(request.before, request.after, request.selection, settings)
        return diff_frame(plan, spark)

    @contextmanager
    def maintenance_workers(
        self, repository: Repository, *, session: object | None, shows_progress: bool
    ) -> Iterator[MaintenanceWorkers]:
        """Lend workers on the caller's session, or on one that is found or started."""
        spark = get_spark() if session is None else spark_session(session)
        progress = Progress.on_stderr() if shows_progress else Progress()
        jobs = Jobs(spark, tag=f"omnigraph-{repository.clock.ulid()}", progress=progress)
        with spark_workers(repository, jobs) as workers:
            yield workers

    @contextmanager
    def merge_workers(
        self, repository: Repository, snapshots: Sequence[Snapshot], *, session: object | None
    ) -> Iterator[MergeWorkers]:
        """Lend workers on the caller's session, or on one that is found or started."""
        spark = get_spark() if session is None else spark_session(session)
        jobs = Jobs(spark, tag=f"omnigraph-{repository.clock.ulid()}", progress=Progress())
        with spark_merge_workers(repository, snapshots, jobs) as workers:
            yield workers

    def export(
        self,
        plan: ExportPlan,
        repository: Repository,
        *,
        session: object | None,
        shows_progress: bool,
    ) -> ExportResult:
        """Export on the caller's session, or on one that is found or started."""
        spark = get_spark() if session is None else spark_session(session)
        progress = Progress.on_stderr() if shows_progress else Progress()
        return export_on_spark(plan, repository.store.settings, spark, progress=progress)


def session_of(request: LoadRequest) -> SparkSession:
    """Return the session to run on: the caller's, that of a DataFrame, or any."""
    if request.session is not None:
        return spark_session(request.session)
    if isinstance(request.data, Mapping):
        for table in request.data.values():
            found: SparkSession | None = getattr(table, "sparkSession", None)
            if found is not None:
                return found
    return get_spark()


def spark_session(session: object) -> SparkSession:
    """Return what a caller gave as a session, if it is one."""
    if not hasattr(session, "createDataFrame"):
        raise EngineMissingError("spark", f"a {type(session).__name__} is no Spark session")
    return cast("SparkSession", session)


def source_of(request: LoadRequest, spark: SparkSession) -> SparkSource:
    """Plan what the tasks will read."""
    data = request.data
    parallelism = parallelism_of(spark)
    options = request.repository.store.settings.storage_options
    if isinstance(data, Mapping):
        _require_order(request, data)
        return SparkSource(
            lambda catalog: plan_tables(
                data,
                catalog,
                spark,
                parallelism=parallelism,
                order_by=request.order_by,
                form=request.form,
                options=options,
            ),
            place="row",
            last_wins_for_unkeyed_ids=False,
        )
    if request.order_by:
        raise LoadOptionsError(_ORDERS_TABLES)
    files = _record_files(data, options)
    if request.options.conversion is ConversionMode.COMPATIBLE:
        return SparkSource(
            lambda _: plan_values(files), place="record", last_wins_for_unkeyed_ids=True
        )
    return SparkSource(
        lambda _: plan_lines(files, parallelism=parallelism, form=request.form, options=options),
        place="line",
        last_wins_for_unkeyed_ids=False,
    )


def _require_order(request: LoadRequest, tables: Mapping[str, object]) -> None:
    """Refuse to choose among rows of one id that have no order, and an order of files."""
    if request.order_by and all(
        is_description(table) and spark_reason(table) is None for table in tables.values()
    ):
        raise LoadOptionsError(_ORDERS_TABLES)
    has_frames = any(
        hasattr(table, "mapInArrow") or spark_reason(table) is not None for table in tables.values()
    )
    if request.options.folds and has_frames and not request.order_by:
        raise LoadOptionsError(
            f"`on_duplicate='{request.options.on_duplicate}'` needs `order_by`:"
            " rows of a DataFrame have no order"
        )


def _record_files(data: object, options: Mapping[str, str]) -> list[InputFile]:
    """Return the files of graph records that paths name."""
    if not isinstance(data, str | os.PathLike | list | tuple):
        raise EngineMissingError("spark", f"a {type(data).__name__} is no path of a file")
    return record_files(data, options)


def parallelism_of(spark: SparkSession) -> int:
    """Return how many tasks run at once, as far as the session says."""
    found = spark.conf.get(_PARALLELISM, None)
    return int(found) if found else classic_parallelism(spark) or os.cpu_count() or 1


register(SparkEngine())
