"""Bulk loads where tasks run in other processes: a small cluster, and a Spark Connect server.

Each test has a session of its own, and so a process of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from omnigraph.graph import Graph
from omnigraph.search.topology.cache import Topologies
from omnigraph.search.topology.store import TopologyStore
from omnigraph.spark import java_problem
from support.loads import graph_lines
from support.places import repository_of
from support.spark_cluster import spark_cluster

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1_500),
    pytest.mark.skipif(java_problem() is not None, reason="there is no Java"),
]

SCHEMA = """\
node Person { name: String @key  age: I32? }
edge Knows: Person -> Person { since: I32? }
"""

ROWS = 14_000

_LOAD = """\
import os, signal, sys
from pathlib import Path
import pyarrow as pa
from omnigraph.graph import Graph
from omnigraph.spark import get_spark
place, marks, master, remote = sys.argv[1:5]
spark = get_spark(master=master or None, remote=remote or None)

def dies_once(batches):
    for batch in batches:
        numbers = batch.column(0).to_pylist()
        yield pa.record_batch({"name": pa.array([f"p{n}" for n in numbers])})
    mark = Path(marks) / "died"
    if master.startswith("local-cluster") and not mark.exists():
        mark.touch()
        # The parent of the worker's daemon is the executor.
        daemon = os.getppid()
        status = Path(f"/proc/{daemon}/status").read_text()
        executor = int(next(l.split()[1] for l in status.splitlines() if l.startswith("PPid")))
        os.kill(executor, signal.SIGKILL)

people = spark.range(0, 2_000, 1, 4).mapInArrow(dies_once, "name string")
edges = spark.range(0, 12_000, 1, 4).selectExpr(
    "concat('p', id % 2000) AS src", "concat('p', (id * 7) % 2000) AS dst",
    "cast(id AS int) AS since",
)
graph = Graph.open(place, durability="process")
result = graph.load({"Person": people, "Knows": edges}, mode="append")
assert (result.engine, result.inserted) == ("spark", 14_000), result.to_json()
again = spark.range(0, 10).selectExpr("concat('p', id) AS name", "cast(id AS int) AS age")
merged = graph.load({"Person": again}, mode="merge")
assert (merged.updated, merged.inserted) == (10, 0), merged.to_json()
print("loaded")
"""


_AGAIN = """\
import os, signal, sys, time
from pathlib import Path
import pyarrow as pa
from pyspark import TaskContext
from omnigraph.graph import Graph
from omnigraph.spark import get_spark
place, marks, what, master = sys.argv[1:5]
spark = get_spark(master=master)

def read(batches):
    task = TaskContext.get()
    (Path(marks) / f"read-{task.partitionId()}-{os.getpid()}-{time.monotonic_ns()}").touch()
    for batch in batches:
        numbers = batch.column(0).to_pylist()
        yield pa.record_batch({"name": pa.array([f"p{n}" for n in numbers])})

def slow_once(batches):
    # The first attempt waits for a second one, which only speculation starts.
    yield from batches
    task, mark = TaskContext.get(), Path(marks) / "twice"
    if task.partitionId() == 3 and task.attemptNumber() == 0:
        for _ in range(1_200):
            if mark.exists():
                return
            time.sleep(0.1)
    elif task.partitionId() == 3:
        mark.touch()

def dies_once(batches):
    # Everything that was shuffled lies with the executors; one of them goes, with its half.
    yield from batches
    mark = Path(marks) / "died"
    if not mark.exists():
        mark.touch()
        daemon = os.getppid()
        status = Path(f"/proc/{daemon}/status").read_text()
        executor = int(next(l.split()[1] for l in status.splitlines() if l.startswith("PPid")))
        os.kill(executor, signal.SIGKILL)

people = spark.range(0, 2_000, 1, 4).mapInArrow(read, "name string")
if what == "speculation":
    people = people.mapInArrow(slow_once, "name string")
else:
    people = people.repartition(4, "name").mapInArrow(dies_once, "name string")
edges = spark.range(0, 12_000, 1, 4).selectExpr(
    "concat('p', id % 2000) AS src", "concat('p', (id * 7) % 2000) AS dst",
    "cast(id AS int) AS since",
)
graph = Graph.open(place, durability="process")
result = graph.load({"Person": people, "Knows": edges}, mode="append")
assert (result.engine, result.inserted) == ("spark", 14_000), result.to_json()
print("loaded")
"""


def _run(tmp_path: Path, *, master: str = "", remote: str = "") -> Path:
    return _run_script(tmp_path, _LOAD, master, remote)


def _run_script(tmp_path: Path, script: str, *arguments: str, settings: str = "") -> Path:
    place = tmp_path / "graph"
    Graph.init(str(place), SCHEMA, durability="process").close()
    own = {"PYSPARK_SUBMIT_ARGS": f"{settings} pyspark-shell"} if settings else {}
    run = subprocess.run(
        [sys.executable, "-c", script, str(place), str(tmp_path), *arguments],
        env={**os.environ, "SPARK_WORKER_DIR": str(tmp_path / "work"), **own},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "loaded" in run.stdout, run.stderr[-4_000:]
    return place


def _check(place: Path) -> None:
    with Graph.open(str(place), durability="process") as graph:
        lines = graph_lines(graph)
        assert len(lines) == ROWS
        assert len(set(lines)) == ROWS, "no row is doubled"
        _check_topology(graph)
        graph.cleanup(keep_versions=1, orphan_age_s=0, confirm=True)
        assert graph_lines(graph) == lines
        assert list((place / "__staging").rglob("*.json")) == []


def _check_topology(graph: Graph) -> None:
    """Compare the topology that the tasks have left with one that is built here."""
    snapshot, edge = graph.snapshot(), graph.catalog().edge_types["Knows"]
    stored = Topologies(TopologyStore(repository_of(graph).store, is_writable=False))
    assert stored.is_at_hand(snapshot, edge)
    found, built = stored.get(snapshot, edge), Topologies(None).get(snapshot, edge)
    assert np.array_equal(found.out.neighbours, built.out.neighbours)
    assert np.array_equal(found.incoming.edges, built.incoming.edges)


def test_an_executor_that_is_killed_while_it_writes_doubles_nothing(tmp_path: Path) -> None:
    place = _run(tmp_path, master="local-cluster[2,1,1024]")
    assert (tmp_path / "died").exists()
    _check(place)


_SPECULATION = (
    " ".join(
        f"--conf spark.speculation.{name}={value}"
        for name, value in (
            *(("interval", "100ms"), ("quantile", "0.25"), ("multiplier", "1.1")),
            *(("minTaskRuntime", "100ms"),),
        )
    )
    + " --conf spark.executor.memory=768m --conf spark.driver.host=127.0.0.1"
)


def test_a_task_that_two_executors_run_at_once_doubles_nothing(tmp_path: Path) -> None:
    settings = f"--conf spark.speculation=true {_SPECULATION}"
    with spark_cluster(tmp_path) as master:
        place = _run_script(tmp_path, _AGAIN, "speculation", master, settings=settings)
    assert (tmp_path / "twice").exists(), "a second attempt ran beside the first"
    _check(place)


def test_a_shuffle_that_is_lost_and_computed_again_doubles_nothing(tmp_path: Path) -> None:
    place = _run_script(tmp_path, _AGAIN, "shuffle", "local-cluster[2,1,1024]")
    assert (tmp_path / "died").exists()
    read = [mark.name.split("-")[1] for mark in tmp_path.glob("read-*")]
    assert set(read) == set("0123")
    assert len(read) > 4, "some of what had been shuffled was computed again"
    _check(place)


@pytest.mark.skipif(find_spec("grpc_status") is None, reason="grpcio-status is not installed")
def test_a_load_runs_on_spark_connect(tmp_path: Path) -> None:
    _check(_run(tmp_path, remote="local[2]"))
