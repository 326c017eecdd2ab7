"""The data source `omnigraph`: what `spark.read.format("omnigraph")` finds.

1. Options are read and the snapshot is pinned when the source is made; every reader of it sees
   that snapshot.
2. The reader does not implement `pushFilters`. In PySpark 4.3 a pushed filter stays on the source
   object and gives wrong rows on its next use, and with Spark's default setting every read would
   fail. Columns and filters are options instead.
3. Nothing of Lance is imported before a method is called: all of them run in Python workers.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import TYPE_CHECKING, NoReturn

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)

from omnigraph.spark.options import (
    ChangeFeedMissingError,
    SourceOptionError,
    SourceOptions,
    read_options,
    refuse_options,
    subject_of,
)
from omnigraph.spark.sink import GraphWriter, write_target
from omnigraph.spark.source_pin import Pin, pin_snapshot
from omnigraph.spark.source_query import QueryScan, plan_query, run_query
from omnigraph.spark.source_system import SystemScan, plan_system, read_system
from omnigraph.spark.source_tables import TablePlan, TableScan, plan_table, read_fragments
from omnigraph.spark.stream_sink import GraphStreamWriter, stream_identity
from omnigraph.spark.types import spark_schema, written_schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

Planned = TablePlan | QueryScan | SystemScan


class OmnigraphSource(DataSource):
    """Reads nodes, edges, query results and system tables of a graph, and writes one type."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._said: SourceOptions = read_options(options)
        self._pin: Pin = pin_snapshot(self._said)

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "omnigraph"

    def schema(self) -> StructType:
        """Return the columns of what the options name."""
        return spark_schema(_schema_of(self._planned()))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of the pinned snapshot."""
        planned = self._planned()
        expected = spark_schema(_schema_of(planned))
        if schema.fieldNames() != expected.fieldNames():
            problem = f"has the columns {', '.join(expected.fieldNames())}; leave `.schema(…)` out"
            raise SourceOptionError(subject_of(self._said)[0], problem)
        return _reader_of(planned)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return a writer of one frame."""
        refuse_options(self._said, "a write of one frame", ("txnAppId",))
        target = write_target(self._said, self._pin, schema, overwrite=overwrite)
        return GraphWriter(target, written_schema(schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        """Return a writer of micro-batches."""
        target = write_target(self._said, self._pin, schema, overwrite=overwrite)
        return GraphStreamWriter(target, written_schema(schema), stream_identity(self._said))

    def streamReader(self, schema: StructType) -> NoReturn:  # noqa: ARG002, N802 - Spark's name
        """Refuse: a stream of a graph is its change feed."""
        raise ChangeFeedMissingError

    def _planned(self) -> Planned:
        kind, name = subject_of(self._said)
        if kind == "query":
            return plan_query(name, self._pin, self._said)
        if kind == "system":
            return plan_system(name, self._pin, self._said)
        return plan_table(kind, name, self._pin, self._said)


def _schema_of(planned: Planned) -> pa.Schema:
    return planned.scan.schema if isinstance(planned, TablePlan) else planned.schema


class FragmentsPartition(InputPartition):
    """What one task reads: fragments of one version of one dataset, some columns, some rows."""

    def __init__(self, scan: TableScan, fragment_ids: tuple[int, ...]) -> None:
        super().__init__(fragment_ids)
        self.scan = scan
        self.fragment_ids = fragment_ids


class TableReader(DataSourceReader):
    """Reads a node or edge type, a group of fragments per task."""

    def __init__(self, plan: TablePlan) -> None:
        self._plan = plan

    def partitions(self) -> list[InputPartition]:
        """Return one partition per group of fragments; one that is empty when there are none."""
        parts = self._plan.parts or ((),)
        return [FragmentsPartition(self._plan.scan, part) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one partition."""
        if not isinstance(partition, FragmentsPartition):
            raise TypeError(f"expected fragments to read, got {type(partition).__name__}")
        return read_fragments(partition.scan, partition.fragment_ids)


class QueryReader(DataSourceReader):
    """Reads the result of a query in one task."""

    def __init__(self, scan: QueryScan) -> None:
        self._scan = scan

    def partitions(self) -> list[InputPartition]:
        """Return the one partition of an answer."""
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002 - there is only one
        """Yield the rows of the answer."""
        return run_query(self._scan)


class SystemReader(DataSourceReader):
    """Reads a system table in one task."""

    def __init__(self, scan: SystemScan) -> None:
        self._scan = scan

    def partitions(self) -> list[InputPartition]:
        """Return the one partition of a small table."""
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002 - there is only one
        """Yield the rows of the table."""
        return iter(read_system(self._scan))


def _reader_of(planned: Planned) -> DataSourceReader:
    match planned:
        case TablePlan():
            return TableReader(planned)
        case QueryScan():
            return QueryReader(planned)
        case SystemScan():
            return SystemReader(planned)
