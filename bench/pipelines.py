"""Declared pipelines against the bare load on Spark of the same rows, in one session.

    .venv/bin/python -m bench pipelines [--nodes 200000] [--edges 1000000] [--rounds 3] [part …]

| part | what | peer | bar |
|---|---|---|---|
| direct | a first run with `publish: direct` | `Graph.load` of the same DataFrames | 1.1 |
| merge | a first run with `publish: merge` and one check | the same load and the same check | 1.1 |
| increment | a run that finds 1 % of the rows by a column | the first run of `merge` | 0.1 |
| files | a run that finds 1 % of the rows in new files | the first run of `merge` | 0.1 |
| memory | driver memory of a first run | a run of a tenth of the rows | 1.1 |

Times are medians of interleaved rounds after one round that does not count. Starting the session,
making the empty graph and writing the input are not part of them. Memory is the largest resident
size in MiB of the Python process of the driver, each measured in a process of its own.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from omnigraph.graph import Graph
from omnigraph.pipelines import Pipeline, RunState
from omnigraph.spark import get_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = """
node Person { name: String @key  age: I32?  city: String?  updated: I64? }
edge Knows: Person -> Person { since: I32?  updated: I64? }
"""
FILE = """\
version: 1
name: bench
target: {{graph: graph.omni, publish: {publish}}}
sources:
  people: {{format: parquet, path: people, incremental: {{{incremental}}}}}
  follows: {{format: parquet, path: follows, incremental: {{{incremental}}}}}
load:
  - {{node: Person, from: people, mode: merge}}
  - {{edge: Knows, from: follows, mode: merge, src: src, dst: dst}}
{checks}"""
CHECK = "SELECT count(*) AS n FROM Person WHERE age > 130"
CHECKS = f"checks: [{{name: ages, sql: {CHECK}, expect: n = 0}}]\n"
BARS = {"direct": 1.1, "merge": 1.1, "increment": 0.1, "files": 0.1, "memory": 1.1}
_ROW_GROUP = 100_000


def write_day(folder: Path, day: int, nodes: range, edges: range, people: int) -> None:
    """Write the rows of one day: people and friendships with these numbers."""
    random = np.random.default_rng(day)
    names = _names("p", np.arange(nodes.start, nodes.stop))
    person = pa.table(
        {
            "name": names,
            "age": pa.array(random.integers(18, 90, len(nodes)), pa.int32()),
            "city": _names("city", random.integers(0, 50, len(nodes))),
            "updated": pa.array(np.full(len(nodes), day, np.int64)),
        }
    )
    source, target = (random.integers(0, people, len(edges)) for _ in "ab")
    knows = pa.table(
        {
            "id": _names("k", np.arange(edges.start, edges.stop)),
            "src": _names("p", source),
            "dst": _names("p", target),
            "since": pa.array(random.integers(1990, 2025, len(edges)), pa.int32()),
            "updated": pa.array(np.full(len(edges), day, np.int64)),
        }
    )
    for name, table in (("people", person), ("follows", knows)):
        (folder / name).mkdir(exist_ok=True)
        path = folder / name / f"day-{day}.parquet"
        pq.write_table(table, path, row_group_size=_ROW_GROUP)


def _names(letter: str, numbers: np.ndarray) -> pa.Array:
    return pc.binary_join_element_wise(letter, pa.array(numbers).cast(pa.utf8()), "")


class Work:
    """A folder with sources, a graph and pipelines that load it."""

    def __init__(self, spark: SparkSession, folder: Path, nodes: int = 0, edges: int = 0) -> None:
        self.spark = spark
        self._folder = folder
        self._nodes, self._edges = nodes, edges

    def increment(self) -> None:
        """Write a day of 1 % of the rows: half of them are new, half are there already."""
        nodes, edges = self._nodes // 200, self._edges // 200
        write_day(
            self._folder,
            1,
            range(self._nodes - nodes, self._nodes + nodes),
            range(self._edges - edges, self._edges + edges),
            self._nodes,
        )

    def fresh(self) -> Graph:
        """Leave one day and an empty graph."""
        for path in self._folder.glob("*/day-1.parquet"):
            path.unlink()
        folder = self._folder / "graph.omni"
        shutil.rmtree(folder, ignore_errors=True)
        return Graph.init(str(folder), SCHEMA, auto_optimize=False)

    def pipeline(self, publish: str, incremental: str = "by: updated") -> Pipeline:
        """Write a pipeline and read it."""
        path = self._folder / "bench.yaml"
        checks = CHECKS if publish == "merge" else ""
        path.write_text(FILE.format(publish=publish, incremental=incremental, checks=checks))
        return Pipeline.load(path)

    def run(self, pipeline: Pipeline) -> None:
        """Run a pipeline, which must succeed."""
        done = pipeline.run(spark=self.spark)
        if done.state is not RunState.SUCCEEDED:
            raise SystemExit(f"{done.state}: {done.error}")

    def load(self, graph: Graph, *, checks: bool) -> None:
        """Load the same rows without a pipeline."""
        read = self.spark.read.parquet
        frames = {"Person": read(str(self._folder / "people"))}
        frames["Knows"] = read(str(self._folder / "follows"))
        graph.load(frames, mode="merge", engine="spark", spark=self.spark)
        if checks:
            graph.to_spark(self.spark, "Person").createOrReplaceTempView("Person")
            self.spark.sql(CHECK).collect()


Step = Callable[[], Callable[[], object]]


def steps(work: Work, part: str) -> tuple[Step, Step]:
    """Return ours and the peer; each prepares, and returns what is timed."""

    def first(publish: str, incremental: str = "by: updated") -> Callable[[], object]:
        work.fresh().close()
        pipeline = work.pipeline(publish, incremental)
        return lambda: work.run(pipeline)

    def bare() -> Callable[[], object]:
        graph = work.fresh()
        return lambda: work.load(graph, checks=part == "merge")

    def next_day(incremental: str) -> Callable[[], object]:
        first("merge", incremental)()
        work.increment()
        pipeline = work.pipeline("merge", incremental)
        return lambda: work.run(pipeline)

    if part in ("direct", "merge"):
        return (lambda: first(part)), bare
    incremental = "by: updated" if part == "increment" else "new_files: true"
    return (lambda: next_day(incremental)), (lambda: first("merge", incremental))


def measured(work: Work, part: str, rounds: int) -> tuple[float, float]:
    """Return the median seconds of both sides."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds + 1):
        for own, step in zip(times, steps(work, part), strict=True):
            timed = step()
            start = time.perf_counter()
            timed()
            own.append(time.perf_counter() - start)
    return statistics.median(times[0][1:]), statistics.median(times[1][1:])


# -- memory ---------------------------------------------------------------------------------------


def memory(nodes: int, edges: int) -> float:
    """Return the largest size in MiB of a process that makes a first run."""
    with tempfile.TemporaryDirectory(prefix="omnigraph-bench-") as folder:
        write_day(Path(folder), 0, range(nodes), range(edges), nodes)
        done = subprocess.run(
            [sys.executable, "-c", f"from bench.pipelines import *; print_memory({folder!r})"],
            capture_output=True,
            text=True,
            check=True,
            cwd=Path(__file__).parents[1],
        )
    return float(done.stdout.split()[-1])


def print_memory(folder: str) -> None:
    """Make a first run and print the largest size of this process."""
    work = Work(session(), Path(folder))
    work.fresh().close()
    work.run(work.pipeline("merge"))
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def session() -> SparkSession:
    """Start Spark on two cores."""
    spark = get_spark(master="local[2]")
    spark.conf.set("spark.sql.shuffle.partitions", "4")
    return spark


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*")
    parser.add_argument("--nodes", type=int, default=200_000)
    parser.add_argument("--edges", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    print("| part | ours | peer | ratio | bar |")
    print("|---|---|---|---|---|")
    parts = asked.parts or list(BARS)
    if "memory" in parts:
        small = memory(asked.nodes // 10, asked.edges // 10)
        _print("memory", memory(asked.nodes, asked.edges), small)
    with tempfile.TemporaryDirectory(prefix="omnigraph-bench-") as folder:
        work = Work(session(), Path(folder), asked.nodes, asked.edges)
        write_day(Path(folder), 0, range(asked.nodes), range(asked.edges), asked.nodes)
        for part in parts:
            if part != "memory":
                _print(part, *measured(work, part, asked.rounds))
        work.spark.stop()


def _print(part: str, own: float, other: float) -> None:
    print(f"| {part} | {own:.2f} | {other:.2f} | {own / other:.2f} | {BARS[part]} |", flush=True)


if __name__ == "__main__":
    main()
