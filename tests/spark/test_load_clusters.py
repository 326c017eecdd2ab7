"""Bulk loads where tasks run in other processes: a small cluster, and a Spark Connect server.

Each test has a session of its own, and so a process of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from omnigraph.graph import Graph
from omnigraph.spark import java_problem
from support.loads import graph_lines

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1_500),
    pytest.mark.skipif(java_problem() is not None, reason="there is no Java"),
]

SCHEMA = """\
node Person { name: String @key  age: I32? }
edge Knows: Person -> Person { since: I32? }
"""

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
edges = spark.range(0, 2_000, 1, 4).selectExpr(
    "concat('p', id) AS src", "concat('p', (id * 7) % 2000) AS dst", "cast(id AS int) AS since"
)
graph = Graph.open(place, durability="process")
result = graph.load({"Person": people, "Knows": edges}, mode="append")
assert (result.engine, result.inserted) == ("spark", 4_000), result.to_json()
again = spark.range(0, 10).selectExpr("concat('p', id) AS name", "cast(id AS int) AS age")
merged = graph.load({"Person": again}, mode="merge")
assert (merged.updated, merged.inserted) == (10, 0), merged.to_json()
print("loaded")
"""


def _run(tmp_path: Path, *, master: str = "", remote: str = "") -> Path:
    place = tmp_path / "graph"
    Graph.init(str(place), SCHEMA, durability="process").close()
    run = subprocess.run(
        [sys.executable, "-c", _LOAD, str(place), str(tmp_path), master, remote],
        env={**os.environ, "SPARK_WORKER_DIR": str(tmp_path / "work")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "loaded" in run.stdout, run.stderr[-4_000:]
    return place


def _check(place: Path) -> None:
    with Graph.open(str(place), durability="process") as graph:
        lines = graph_lines(graph)
        assert len(lines) == 4_000
        assert len(set(lines)) == 4_000, "no row is doubled"
        graph.cleanup(keep_versions=1, orphan_age_s=0, confirm=True)
        assert graph_lines(graph) == lines
        assert list((place / "__staging").rglob("*.json")) == []


def test_an_executor_that_is_killed_while_it_writes_doubles_nothing(tmp_path: Path) -> None:
    place = _run(tmp_path, master="local-cluster[2,1,1024]")
    assert (tmp_path / "died").exists()
    _check(place)


@pytest.mark.skipif(find_spec("grpc_status") is None, reason="grpcio-status is not installed")
def test_a_load_runs_on_spark_connect(tmp_path: Path) -> None:
    _check(_run(tmp_path, remote="local[2]"))
