"""A micro-batch of a pipeline against the same rows by `graph.load`, in one session, in turns.

    .venv/bin/python -m bench pipeline_stream [--rows 10000] [--rounds 7]

Each round has a file of its own. The stream takes it as one micro-batch; then `graph.load` loads
the same file as a DataFrame into another graph. A micro-batch is measured from the end of the one
before it, so what Spark does between two of them is a part of it. The first round does not count.
The bar is a ratio of at most 1.5.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from omnigraph.graph import Graph
from omnigraph.pipelines import Pipeline, RunRecord, RunState
from omnigraph.spark import get_spark

BAR = 1.5
SCHEMA = "node Person { name: String @key  age: I64?  city: String? }\n"
PIPELINE = """\
version: 1
name: stream
target: {graph: streamed.omni, publish: direct}
trigger: {available_now: true}
sources:
  people:
    format: parquet
    path: in
    schema: name STRING, age BIGINT, city STRING
    options: {maxFilesPerTrigger: 1}
load: [{node: Person, from: people, mode: append}]
"""


def write_file(path: Path, number: int, rows: int) -> None:
    """Write the rows of one round."""
    columns = {
        "name": [f"p{number}-{row}" for row in range(rows)],
        "age": [row % 90 for row in range(rows)],
        "city": [f"city {row % 500}" for row in range(rows)],
    }
    pq.write_table(pa.table(columns), path)


class Turns:
    """Loads the file of a micro-batch once more when the stream has taken it."""

    def __init__(self, files: list[Path], other: Graph, spark: object) -> None:
        self._files = files
        self._other = other
        self._spark = spark
        self._from = 0.0
        self.batches: list[float] = []
        self.loads: list[float] = []

    def start(self) -> None:
        """Begin to measure the first micro-batch."""
        self._from = time.perf_counter()

    def take(self, run: RunRecord) -> None:
        """Note how long a micro-batch took, and do the same by hand."""
        ended = time.perf_counter()
        if run.state is not RunState.SUCCEEDED:
            raise SystemExit(run.error)
        self.batches.append(ended - self._from)
        path = self._files[len(self.loads)]
        frame = self._spark.read.parquet(str(path))  # type: ignore[attr-defined]  # a session
        self._other.load({"Person": frame}, mode="append", engine="spark", spark=self._spark)
        self.loads.append(time.perf_counter() - ended)
        self.start()


def measure(folder: Path, rows: int, rounds: int) -> Turns:
    """Run all rounds."""
    (folder / "in").mkdir()
    files = [folder / "in" / f"{number:04}.parquet" for number in range(rounds + 1)]
    for number, path in enumerate(files):
        write_file(path, number, rows)
    (folder / "stream.yaml").write_text(PIPELINE)
    Graph.init(folder / "streamed.omni", SCHEMA).close()
    spark = get_spark(master="local[2]")
    with Graph.init(folder / "loaded.omni", SCHEMA) as other:
        turns = Turns(files, other, spark)
        turns.start()
        Pipeline.load(folder / "stream.yaml").run(spark=spark, on_batch=turns.take)
    spark.stop()
    return turns


def main() -> None:
    """Print the table of this benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        turns = measure(Path(folder), options.rows, options.rounds)
    batch, load = statistics.median(turns.batches[1:]), statistics.median(turns.loads[1:])
    print("| rows | micro-batch, s | graph.load, s | ratio | bar |")
    print("|---|---|---|---|---|")
    print(f"| {options.rows:,} | {batch:.2f} | {load:.2f} | {batch / load:.2f} | {BAR} |")


if __name__ == "__main__":
    main()
