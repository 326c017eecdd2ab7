"""Why filters and columns are options: what PySpark 4.3 does with push-down into Python sources.

These are tests of Spark. One of them turning red means that Spark has mended something, and that
`omnigraph.spark.source.data_source` may be able to use it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from omnigraph.spark.source.scan import OneTaskReader, TypeReader

PUSH_DOWN = "spark.sql.python.filterPushdown.enabled"


def pushing_source() -> type[DataSource]:
    """Return a source of the numbers 0 to 9 that takes every filter on `n`."""

    class Reader(DataSourceReader):
        def __init__(self) -> None:
            self.above = -1

        def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:  # noqa: N802 - Spark's name
            for one in filters:
                if type(one).__name__ == "GreaterThan":
                    self.above = one.value  # type: ignore[attr-defined]  # of this kind of filter
                else:
                    yield one

        def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
            return ((number,) for number in range(10) if number > self.above)

    class Source(DataSource):
        @classmethod
        def name(cls) -> str:
            return "guard_pushing"

        def schema(self) -> str:
            return "n int"

        def reader(self, schema: StructType) -> DataSourceReader:
            return Reader()

    return Source


def recording_source(place: str) -> type[DataSource]:
    """Return a source that notes which columns its reader was asked for."""

    class Reader(DataSourceReader):
        def read(self, partition: InputPartition) -> Iterator[tuple[int, int]]:
            yield 1, 2

    class Source(DataSource):
        @classmethod
        def name(cls) -> str:
            return "guard_recording"

        def schema(self) -> str:
            return "a int, b int"

        def reader(self, schema: StructType) -> DataSourceReader:
            with open(place, "a") as file:  # noqa: PTH123 - runs in a worker, by value
                file.write(",".join(schema.fieldNames()) + "\n")
            return Reader()

    return Source


@pytest.mark.spark
def test_a_pushed_filter_sticks_to_the_frame_and_gives_wrong_rows(spark: SparkSession) -> None:
    spark.dataSource.register(pushing_source())
    spark.conf.set(PUSH_DOWN, "true")
    try:
        numbers = spark.read.format("guard_pushing").load()
        assert numbers.where("n > 6").count() == 3
        assert numbers.count() == 3, "Spark has mended it: the right answer is 10"
    finally:
        spark.conf.unset(PUSH_DOWN)


@pytest.mark.spark
def test_a_reader_that_takes_filters_fails_unless_a_setting_is_changed(spark: SparkSession) -> None:
    assert spark.conf.get(PUSH_DOWN) == "false"
    spark.dataSource.register(pushing_source())
    with pytest.raises(AnalysisException, match="DATA_SOURCE_PUSHDOWN_DISABLED"):
        spark.read.format("guard_pushing").load().count()


@pytest.mark.spark
def test_column_pruning_does_not_reach_a_python_source(spark: SparkSession, tmp_path: Path) -> None:
    place = tmp_path / "asked.txt"
    spark.dataSource.register(recording_source(str(place)))
    frame = spark.read.format("guard_recording").load().select("b")
    assert frame.toArrow().equals(pa.table({"b": pa.array([2], pa.int32())}))
    assert set(place.read_text().split()) == {"a,b"}, "Spark has mended it: b alone was asked for"


def test_our_readers_take_no_filters() -> None:
    for reader in (TypeReader, OneTaskReader):
        assert reader.pushFilters is DataSourceReader.pushFilters
