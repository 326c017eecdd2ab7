"""The data source `omnigraph`: what `spark.read.format("omnigraph")` finds.

1. Options are read and the snapshot is pinned when the source is made; every reader of it sees
   that snapshot.
2. The reader does not implement `pushFilters`. In PySpark 4.3 a pushed filter stays on the source
   object and gives wrong rows on its next use, and with Spark's default setting every read would
   fail. Columns and filters are options instead.
3. Spark imports this module in every task, because a task gets the object that planned it. What
   only planning needs is therefore imported by planning.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)

from omnigraph.spark.source.options import (
    FEED,
    SourceOptionError,
    read_options,
    reads_feed,
    refuse_options,
    subject_of,
)
from omnigraph.spark.types import spark_schema, written_schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from omnigraph.spark.source.plan import Planned


class OmnigraphSource(DataSource):
    """Reads nodes, edges, query results and system tables of a graph, and writes one type."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        from omnigraph.spark.source.pin import pin_snapshot  # noqa: PLC0415 - see fact 3

        super().__init__(options)
        self._said = read_options(options)
        self._pin = pin_snapshot(self._said)

    @classmethod
    def name(cls) -> str:
        return "omnigraph"

    def schema(self) -> StructType:
        return spark_schema(self._planned().schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        planned = self._planned()
        self._require_columns(schema, spark_schema(planned.schema))
        return planned.reader

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from omnigraph.spark.sink.table_sink import GraphWriter, write_target  # noqa: PLC0415 - see fact 3

        refuse_options(self._said, "a write of one frame", ("txnAppId",))
        target = write_target(self._said, self._pin, schema, overwrite=overwrite)
        return GraphWriter(target, written_schema(schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        from omnigraph.spark.sink.stream import (  # noqa: PLC0415 - see fact 3
            GraphStreamWriter,
            stream_identity,
        )
        from omnigraph.spark.sink.table_sink import write_target  # noqa: PLC0415 - see fact 3

        target = write_target(self._said, self._pin, schema, overwrite=overwrite)
        return GraphStreamWriter(target, written_schema(schema), stream_identity(self._said))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        from omnigraph.spark.source.stream import plan_stream  # noqa: PLC0415 - see fact 3

        stream = plan_stream(self._said, self._pin)
        self._require_columns(schema, spark_schema(stream.schema))
        return stream

    def _require_columns(self, schema: StructType, expected: StructType) -> None:
        if schema.fieldNames() != expected.fieldNames():
            subject = FEED if reads_feed(self._said) else subject_of(self._said)[0]
            problem = f"has the columns {', '.join(expected.fieldNames())}; leave `.schema(…)` out"
            raise SourceOptionError(subject, problem)

    def _planned(self) -> Planned:
        from omnigraph.spark.source.plan import plan_read  # noqa: PLC0415 - see fact 3

        return plan_read(self._said, self._pin)
