"""Two columns of all edges into Spark, against Spark reading the same columns of parquet.

    .venv/bin/python -m bench spark_read [--size XS|S|M] [--rounds 3]

| work | what happens to the rows |
|---|---|
| rows | handed over one by one, to a sink that drops them |
| hash | hashed and combined to one number |

The *floor* is a Python data source that does nothing but yield one Arrow batch again and again,
with texts of the same length: what Spark itself takes for a source that is written in Python. The
bar is 1.5 times parquet. Rounds take turns; the first one does not count.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from bench.data import SIZES
from bench.spark_load import SCHEMA, write_inputs
from omnigraph.graph import Graph
from omnigraph.spark import get_spark

COLUMNS = ("src", "dst")
_PARTS = 8
_BATCH_ROWS = 1 << 16
ACTS: dict[str, Callable[[DataFrame], object]] = {
    "rows": lambda frame: frame.write.format("noop").mode("overwrite").save(),
    "hash": lambda frame: frame.selectExpr("bit_xor(xxhash64(src, dst))").collect(),
}


def floor_source(rows: int) -> type[DataSource]:
    """Return a source that yields one batch until it has yielded so many rows."""

    class Reader(DataSourceReader):
        def partitions(self) -> list[InputPartition]:
            return [InputPartition(number) for number in range(_PARTS)]

        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002 - all are equal
            numbers = pa.array(np.random.default_rng(1).integers(0, 1_000_000, _BATCH_ROWS))
            texts = pc.binary_join_element_wise("p", numbers.cast(pa.utf8()), "")
            batch = pa.record_batch([texts, texts], names=list(COLUMNS))
            for first in range(0, rows // _PARTS, _BATCH_ROWS):
                yield batch.slice(0, min(_BATCH_ROWS, rows // _PARTS - first))

    class Source(DataSource):
        @classmethod
        def name(cls) -> str:
            return "bench_floor"

        def schema(self) -> str:
            return "src string, dst string"

        def reader(self, schema: Any) -> DataSourceReader:  # noqa: ARG002 - there is only one
            return Reader()

    return Source


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", default="S", choices=sorted(SIZES))
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    spark = get_spark(master="local[2]")
    spark.dataSource.register(floor_source(SIZES[asked.size][1]))
    with tempfile.TemporaryDirectory(prefix="omnigraph-bench-") as name:
        folder = Path(name)
        write_inputs(folder, asked.size)
        edges = str(folder / "knows.parquet")
        graph = Graph.init(str(folder / "graph"), SCHEMA, durability="process")
        data = {"Person": str(folder / "person.parquet"), "Knows": edges}
        graph.load(data, mode="append", engine="spark", spark=spark)
        frames: dict[str, Callable[[], DataFrame]] = {
            "parquet": lambda: spark.read.parquet(edges).select(*COLUMNS),
            "ours": lambda: graph.to_spark(spark, "Knows", columns=COLUMNS),
            "floor": lambda: spark.read.format("bench_floor").load(),
        }
        print("| work | parquet s | ours s | ratio | floor s | its ratio |")
        print("|---|---|---|---|---|---|")
        for work, act in ACTS.items():
            times: dict[str, list[float]] = {side: [] for side in frames}
            for number in range(asked.rounds + 1):
                for side, frame in frames.items():
                    start = time.perf_counter()
                    act(frame())
                    times[side] += [time.perf_counter() - start] if number else []
            peer, own, floor = (statistics.median(times[side]) for side in frames)
            row = f"| {work} | {peer:.2f} | {own:.2f} | {own / peer:.2f}"
            print(f"{row} | {floor:.2f} | {floor / peer:.2f} |", flush=True)
        graph.close()
    spark.stop()


if __name__ == "__main__":
    main()
