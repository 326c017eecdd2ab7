"""Ten million edges, with as little memory as the drivers and executors of small clusters have."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from omnigraph.graph import Graph
from omnigraph.spark import java_problem

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(3_000),
    pytest.mark.skipif(java_problem() is not None, reason="there is no Java"),
]

SCHEMA = """\
node Person { name: String @key  age: I32? }
edge Knows: Person -> Person { since: I32? }
"""
NODES, EDGES, GROUP = 1_000_000, 10_000_000, 500_000
RESULT_MAX = "16m"
"""What all tasks of one job may send to the driver; the edges alone are ten times as much."""
DRIVER_GROWTH_MAX = 1 << 30
WORKER_MAX = 2 << 30

_LOAD = """\
import json, sys, threading
from pathlib import Path
from omnigraph.graph import Graph
from omnigraph.spark import get_spark
place, nodes, edges = sys.argv[1:4]
spark = get_spark(master="local-cluster[2,1,2048]")
largest, done = {}, threading.Event()

def peak(process):
    lines = (Path("/proc") / process / "status").read_text().splitlines()
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))

def watch():
    # Python workers are no part of the executors' heaps, so they are looked at one by one.
    while not done.wait(0.2):
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if b"pyspark.daemon" in (process / "cmdline").read_bytes():
                    largest[process.name] = max(largest.get(process.name, 0), peak(process.name))
            except OSError:
                pass

watcher = threading.Thread(target=watch)
watcher.start()
before = peak("self")
graph = Graph.open(place, durability="process", auto_optimize=False)
result = graph.load({"Person": nodes, "Knows": edges}, mode="append", engine="spark", spark=spark)
grown = peak("self") - before
done.set()
watcher.join()
heap = spark.sparkContext._jvm.java.lang.Runtime.getRuntime().maxMemory()
print(json.dumps({
    "inserted": result.inserted, "engine": result.engine, "seconds": result.seconds.to_json(),
    "driver_growth": grown, "driver_heap": heap, "worker": max(largest.values(), default=0),
}))
spark.stop()
"""


def _write_inputs(folder: Path) -> tuple[str, str]:
    chance = np.random.default_rng(7)
    names = pa.array(np.char.add("person-", np.arange(NODES).astype(str)))
    people = folder / "people.parquet"
    pq.write_table(pa.table({"name": names}), people, row_group_size=GROUP // 5)
    knows = folder / "knows.parquet"
    kinds = pa.schema([("src", pa.utf8()), ("dst", pa.utf8()), ("since", pa.int32())])
    with pq.ParquetWriter(knows, kinds) as writer:
        for _ in range(EDGES // GROUP):
            ends = [names.take(pa.array(chance.integers(0, NODES, GROUP))) for _ in range(2)]
            since = pa.array(chance.integers(1990, 2030, GROUP).astype(np.int32))
            writer.write_table(pa.table([*ends, since], schema=kinds), row_group_size=GROUP)
    return str(people), str(knows)


def test_ten_million_edges_pass_with_a_driver_of_one_and_executors_of_two_gibibytes(
    tmp_path: Path,
) -> None:
    inputs = _write_inputs(tmp_path)
    place = tmp_path / "graph"
    Graph.init(str(place), SCHEMA, durability="process").close()
    settings = f"--conf spark.driver.maxResultSize={RESULT_MAX} pyspark-shell"
    run = subprocess.run(
        [sys.executable, "-c", _LOAD, str(place), *inputs],
        env={
            **os.environ,
            "SPARK_WORKER_DIR": str(tmp_path / "work"),
            "OMNIGRAPH_SPARK_DRIVER_MEMORY": "1g",
            "PYSPARK_SUBMIT_ARGS": f"--conf spark.executor.memory=2g {settings}",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-4_000:]
    said = json.loads(run.stdout.splitlines()[-1])
    sys.stdout.write(f"{said}\n")
    assert (said["inserted"], said["engine"]) == (NODES + EDGES, "spark")
    assert said["driver_heap"] <= 1 << 30
    assert said["driver_growth"] < DRIVER_GROWTH_MAX
    assert 0 < said["worker"] < WORKER_MAX
    with Graph.open(str(place), durability="process", auto_optimize=False) as graph:
        assert graph.snapshot().open("edge:Knows").count() == EDGES
