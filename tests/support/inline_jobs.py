"""Runs what Spark tasks run, in this process and without Spark: the tasks' own code is the same."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pyarrow as pa

from omnigraph.graph import Graph
from omnigraph.names import BranchName
from omnigraph.schema.values.converted import ConversionMode
from omnigraph.spark.diff_tasks import CANDIDATES
from omnigraph.spark.load.inputs import plan_lines, plan_tables, plan_values
from omnigraph.spark.load.workers import SparkSource, Tuning, load_on_spark
from omnigraph.write.load.input.source import record_files
from omnigraph.write.load.options import LoadOptions
from omnigraph.write.load.result import LoadResult
from support.places import repository_of, session_of


def _travelled(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


class InlineJobs:
    """Calls functions one after another; everything travels as pickles, as it would to a task."""

    application_id = "inline"

    def __init__(self) -> None:
        self.stages: list[str] = []

    def calls(
        self, stage: str, function: Callable[[Any, int], Any], asked: Sequence[Any]
    ) -> list[Any]:
        if not asked:
            return []
        self.stages.append(stage)
        sent = _travelled((function, tuple(asked)))
        answers = [sent[0](one, number) for number, one in enumerate(sent[1])]
        return list(_travelled(answers))

    def rows(
        self,
        stage: str,
        frame: Any,
        function: Callable[[Iterable[pa.RecordBatch], int], Any],
    ) -> list[Any]:
        self.stages.append(stage)
        sent = _travelled(function)
        partitions = [table.to_batches() for table in frame.partitions if table.num_rows]
        answers = [sent(iter(batches), number) for number, batches in enumerate(partitions)]
        return list(_travelled(answers))

    def bucketed(
        self,
        stage: str,
        read: Any,
        buckets: int,
        function: Callable[[Iterable[pa.RecordBatch], int], Any],
    ) -> list[Any]:
        numbers = pa.record_batch({"id": pa.array(range(len(read.tasks)), pa.int64())})
        rows = pa.Table.from_batches(_travelled(read)(iter([numbers])), CANDIDATES)
        parts = [rows.filter(pa.compute.equal(rows["bucket"], n)) for n in range(buckets)]
        return self.rows(stage, InlinePartitions(parts), function)


class InlinePartitions:
    """Tables that partitions hold."""

    def __init__(self, partitions: Sequence[pa.Table]) -> None:
        self.partitions = partitions


class InlineFrame:
    """A table in partitions, as a DataFrame has them."""

    def __init__(self, table: pa.Table, partitions: int = 2) -> None:
        size = -(-table.num_rows // partitions) or 1
        self.partitions = [table.slice(n * size, size) for n in range(partitions)]
        self.columns = table.schema.names

    def mapInArrow(self) -> None:  # noqa: N802 - the name by which frames are known
        raise NotImplementedError


def inline_load(
    graph: Graph,
    data: Any,
    *,
    tuning: Tuning | None = None,
    jobs: InlineJobs | None = None,
    embed: str = "off",
    **options: Any,
) -> LoadResult:
    """Load as `Graph.load(engine="spark")` does, with tasks that run in this process."""
    if isinstance(data, dict):
        tables = {
            name: InlineFrame(table) if isinstance(table, pa.Table) else table
            for name, table in data.items()
        }
        unused: Any = None
        source = SparkSource(
            lambda catalog: plan_tables(tables, catalog, unused, parallelism=2), "row", False
        )
    else:
        files = record_files(data)
        is_strict = options.get("conversion", ConversionMode.STRICT) is ConversionMode.STRICT
        source = (
            SparkSource(lambda _: plan_lines(files, parallelism=2), "line", False)
            if is_strict
            else SparkSource(lambda _: plan_values(files), "record", True)
        )
    repository = repository_of(graph)
    options.setdefault("target", BranchName(graph.branch))
    return load_on_spark(
        repository,
        session_of(graph).committer,
        source,
        LoadOptions(**options),
        jobs or InlineJobs(),
        operation_id=repository.clock.ulid(),
        tuning=tuning,
        embedder=session_of(graph).embedder(embed),
    )
