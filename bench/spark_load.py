"""Bulk loads on Spark against Spark's own copy of the same rows, in one session.

    .venv/bin/python -m bench spark_load [--size XS|S|M] [--rounds 3] [part …]

| part | what | peer | bar |
|---|---|---|---|
| files | parquet files → graph, `append`, everything checked | parquet → parquet | 2.0 |
| frame | the same from DataFrames | parquet → parquet | 3.0 |
| edges | edges alone from files, into a graph that has the nodes | parquet → parquet | none |
| jsonl | graph JSONL → graph, everything checked | JSON → parquet by Spark | 1.5 |
| merge | 1 % of the edges changed | `overwrite` of all of them | 0.25 |

Times are medians of interleaved rounds after one round that does not count. Starting the session,
making the empty graph and writing the input are not part of them. `memory` is the largest resident
size of the driver's Python process, over that before the first load.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.data import SIZES, social
from omnigraph.graph import Graph
from omnigraph.spark import get_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = """
node Person { id_: String  age: I32?  city: String?  bio: String?  name: String?  @key(id_) }
edge Knows: Person -> Person { since: I32? }
"""
BARS = {"files": 2.0, "frame": 3.0, "jsonl": 1.5, "merge": 0.25}


def write_inputs(folder: Path, size: str) -> None:
    """Write the tables of one size as parquet files."""
    data = social(size)
    person = data.person.rename_columns(
        ["id_" if name == "id" else name for name in data.person.schema.names]
    )
    known = [name for name in ("id_", "age", "city", "bio", "name") if name in person.schema.names]
    knows = data.knows
    columns = {name: knows[name] for name in ("src", "dst", "since")}
    numbers = pa.array(np.char.add("k", np.arange(knows.num_rows).astype(str)), pa.utf8())
    numbered = pa.table({"id": numbers, **columns})
    chosen = np.random.default_rng(1).choice(knows.num_rows, knows.num_rows // 100, False)
    few = numbered.take(pa.array(chosen))
    later = pa.array(np.full(few.num_rows, 2_099, np.int32))
    changed = few.set_column(few.schema.get_field_index("since"), "since", later)
    tables = {
        "person": person.select(known),
        "knows": pa.table(columns),
        "numbered": numbered,
        "changed": changed,
    }
    for name, table in tables.items():
        groups = max(100_000, table.num_rows // 16)
        pq.write_table(table, folder / f"{name}.parquet", row_group_size=groups)


class Work:
    """The inputs of one size, and graphs to load them into."""

    def __init__(self, spark: SparkSession, folder: Path, size: str) -> None:
        self.spark = spark
        self._folder = folder
        # In a process of its own, so that it is not taken for memory of a load.
        context = multiprocessing.get_context("spawn")
        maker = context.Process(target=write_inputs, args=(folder, size))
        maker.start()
        maker.join()
        names = ("person", "knows", "numbered", "changed")
        self.person, self.knows, self.numbered, self.changed = (
            str(folder / f"{name}.parquet") for name in names
        )

    def fresh(self) -> Graph:
        """Make an empty graph."""
        folder = self._folder / "graph"
        shutil.rmtree(folder, ignore_errors=True)
        return Graph.init(str(folder), SCHEMA, durability="process", auto_optimize=False)

    def jsonl(self) -> Path:
        """Write the same rows as graph records, once."""
        path = self._folder / "all.jsonl"
        if not path.exists():
            with path.open("w") as file:
                for name, table in (("Person", self.person), ("Knows", self.knows)):
                    for batch in pq.ParquetFile(table).iter_batches():
                        for row in batch.to_pylist():
                            file.write(_record(name, row))
        return path

    def copy(self) -> None:
        """Copy both tables by Spark itself."""
        for name, path in (("person", self.person), ("knows", self.knows)):
            out = str(self._folder / f"copy-{name}")
            self.spark.read.parquet(path).write.mode("overwrite").parquet(out)

    def copy_edges(self) -> None:
        """Copy the edges by Spark itself."""
        out = str(self._folder / "copy-knows")
        self.spark.read.parquet(self.knows).write.mode("overwrite").parquet(out)

    def copy_json(self) -> None:
        """Read the records and write them as parquet by Spark itself."""
        out = str(self._folder / "copy-json")
        frame = self.spark.read.schema(_JSON_SCHEMA).json(str(self.jsonl()))
        frame.write.mode("overwrite").parquet(out)


_JSON_SCHEMA = (
    "type string, edge string, `from` string, `to` string,"
    " data struct<id_: string, age: int, city: string, bio: string, name: string, since: int>"
)


def _record(name: str, row: dict[str, object]) -> str:
    if name == "Person":
        return json.dumps({"type": name, "data": row}) + "\n"
    ends = {"from": row.pop("src"), "to": row.pop("dst")}
    return json.dumps({"edge": name, **ends, "data": row}) + "\n"


Step = Callable[[], Callable[[], object]]


def steps(work: Work, part: str) -> tuple[Step, Step]:
    """Return ours and the peer; each prepares, and returns what is timed."""
    read = work.spark.read.parquet

    def load(graph: Graph, data: object, mode: str = "append") -> object:
        return graph.load(data, mode=mode, engine="spark", spark=work.spark)  # type: ignore[arg-type]  # paths and tables by type

    def ours() -> Callable[[], object]:
        graph = work.fresh()
        if part == "files":
            return lambda: load(graph, {"Person": work.person, "Knows": work.knows})
        if part == "frame":
            frames = {"Person": read(work.person), "Knows": read(work.knows)}
            return lambda: load(graph, frames)
        if part == "jsonl":
            path = work.jsonl()
            return lambda: load(graph, path)
        load(graph, {"Person": work.person})
        if part == "edges":
            return lambda: load(graph, {"Knows": work.knows})
        load(graph, {"Knows": work.numbered})
        return lambda: load(graph, {"Knows": work.changed}, "merge")

    def peer() -> Callable[[], object]:
        if part == "merge":
            graph = work.fresh()
            load(graph, {"Person": work.person})
            return lambda: load(graph, {"Knows": work.numbered}, "overwrite")
        if part == "jsonl":
            work.jsonl()
            return work.copy_json
        return work.copy_edges if part == "edges" else work.copy

    return ours, peer


def measured(work: Work, part: str, rounds: int) -> tuple[float, float]:
    """Return the median seconds of both sides."""
    ours, peer = steps(work, part)
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds + 1):
        for own, step in zip(times, (ours, peer), strict=True):
            timed = step()
            start = time.perf_counter()
            timed()
            own.append(time.perf_counter() - start)
    return statistics.median(times[0][1:]), statistics.median(times[1][1:])


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*")
    parser.add_argument("--size", default="S", choices=sorted(SIZES))
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    spark = get_spark(master="local[2]")
    spark.conf.set("spark.sql.shuffle.partitions", "4")
    with tempfile.TemporaryDirectory(prefix="omnigraph-bench-") as folder:
        work = Work(spark, Path(folder), asked.size)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print("| part | ours s | peer s | ratio | bar |")
        print("|---|---|---|---|---|")
        for part in asked.parts or ["files", "frame", "edges", "jsonl", "merge"]:
            own, other = measured(work, part, asked.rounds)
            bar = BARS.get(part, "none")
            print(f"| {part} | {own:.2f} | {other:.2f} | {own / other:.2f} | {bar} |", flush=True)
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(f"\nmemory: {(after - before) / 1024:.0f} MiB over {before / 1024:.0f} MiB")
    spark.stop()


if __name__ == "__main__":
    main()
