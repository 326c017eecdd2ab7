"""The data source `omnigraph`: what `spark.read.format("omnigraph")` finds.

1. Options are read and the snapshot is pinned when the source is made; every reader of it sees
   that snapshot.
2. The reader does not implement `pushFilters`. In PySpark 4.3 a pushed filter stays on the source
   object and gives wrong rows on its next use, and with Spark's default setting every read would
   fail. Columns and filters are options instead.
3. Spark imports this module in every task, because a task gets the object that planned it. What
   only planning needs is therefore imported by planning.
4. Spark shows an error of a source as the text of its traceback. Errors of ours leave here without
   the frames in which they were raised, so that their sentence is what there is to read.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from functools import wraps
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)

from omnigraph.errors import OmnigraphError
from omnigraph.spark.source.options import (
    FEED,
    FOLLOW,
    SourceOptionError,
    is_set,
    read_options,
    reads_feed,
    refuse_options,
    subject_of,
)
from omnigraph.spark.source.scan import TypeReader
from omnigraph.spark.types import spark_schema, written_schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from omnigraph.spark.source.plan import Planned


_Arguments = ParamSpec("_Arguments")
_Answer = TypeVar("_Answer")


def _plainly(call: Callable[_Arguments, _Answer]) -> Callable[_Arguments, _Answer]:
    """Drop the frames of errors of ours: see fact 4."""

    @wraps(call)
    def plain(*arguments: _Arguments.args, **named: _Arguments.kwargs) -> _Answer:
        try:
            return call(*arguments, **named)
        except OmnigraphError as error:
            raise error.with_traceback(None) from None

    return plain


class OmnigraphSource(DataSource):
    """Reads nodes, edges, query results and system tables of a graph, and writes one type."""

    @_plainly
    def __init__(self, options: MutableMapping[str, str]) -> None:
        from omnigraph.spark.source.pin import pin_snapshot  # noqa: PLC0415 - see fact 3

        super().__init__(options)
        self._said = read_options(options)
        self._pin = pin_snapshot(self._said)

    @classmethod
    def name(cls) -> str:
        return "omnigraph"

    @_plainly
    def schema(self) -> StructType:
        return spark_schema(self._planned().schema)

    @_plainly
    def reader(self, schema: StructType) -> DataSourceReader:
        planned = self._planned()
        expected = spark_schema(planned.schema)
        if self._chooses(schema, expected):
            return self._chosen(schema)
        self._require_columns(schema, expected)
        return planned.reader

    @_plainly
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from omnigraph.spark.sink.table_sink import GraphWriter, write_target  # noqa: PLC0415 - see fact 3

        refuse_options(self._said, "a write of one frame", ("txnAppId",))
        target = write_target(self._said, self._pin, schema, overwrite=overwrite)
        return GraphWriter(target, written_schema(schema))

    @_plainly
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        from omnigraph.spark.sink.stream import (  # noqa: PLC0415 - see fact 3
            GraphStreamWriter,
            stream_identity,
        )
        from omnigraph.spark.sink.table_sink import write_target  # noqa: PLC0415 - see fact 3

        target = write_target(self._said, self._pin, schema, overwrite=overwrite)
        return GraphStreamWriter(target, written_schema(schema), stream_identity(self._said))

    @_plainly
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        from omnigraph.spark.source.stream import plan_stream  # noqa: PLC0415 - see fact 3

        stream = plan_stream(self._said, self._pin)
        self._require_columns(schema, spark_schema(stream.schema))
        return stream

    def _chooses(self, schema: StructType, expected: StructType) -> bool:
        """Whether `.schema(…)` names some of the columns that there are, with their types."""
        if reads_feed(self._said) or subject_of(self._said)[0] not in ("node", "edge"):
            return False
        if schema == expected or is_set(self._said, FOLLOW):
            return False
        known = {field.name: field.dataType for field in expected.fields}
        return all(known.get(field.name) == field.dataType for field in schema.fields)

    def _chosen(self, schema: StructType) -> DataSourceReader:
        """Return a reader of the columns that `.schema(…)` names, as nullable as it says."""
        from omnigraph.spark.source.plan import plan_read  # noqa: PLC0415 - see fact 3

        reader = plan_read(self._said.with_columns(schema.fieldNames()), self._pin).reader
        if not isinstance(reader, TypeReader):
            raise TypeError(f"expected a reader of a type, got {type(reader).__name__}")
        nullable = {field.name for field in schema.fields if field.nullable}
        return reader.with_nullable(nullable)

    def _require_columns(self, schema: StructType, expected: StructType) -> None:
        if schema.fieldNames() != expected.fieldNames():
            subject = FEED if reads_feed(self._said) else subject_of(self._said)[0]
            problem = f"has the columns {', '.join(expected.fieldNames())}; leave `.schema(…)` out"
            raise SourceOptionError(subject, problem)

    def _planned(self) -> Planned:
        from omnigraph.spark.source.plan import plan_read  # noqa: PLC0415 - see fact 3

        return plan_read(self._said, self._pin)
