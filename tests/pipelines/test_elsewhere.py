"""Pipelines where tasks run in other processes: a small cluster, and a Spark Connect server.

Each test has a session of its own, and so a process of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from omnigraph.spark import java_problem
from support.pages import ROOT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1_500),
    pytest.mark.skipif(java_problem() is not None, reason="there is no Java"),
]

_STORY = """\
import sys
from pathlib import Path
from omnigraph import Graph
from omnigraph.pipelines import Pipeline, validate_path
from omnigraph.spark import get_spark
from support.story import Story, rows_of

folder, master, remote = sys.argv[1:]
spark = get_spark(master=master or None, remote=remote or None)
story = Story(Path(folder), nodes=2_000, edges=4_000)
story.deliver_all()
found = validate_path(story.file, spark=spark)
assert found.ok, found.diagnostics
pipeline = Pipeline.load(story.file)

def run(run_id):
    return pipeline.run(run_id=run_id, spark=spark)

def require_equal():
    with Graph.open(Path(folder) / "graph.omni") as graph:
        found = rows_of(graph)
        assert graph.branches.list() == ["main"]
    for key, table in story.from_scratch("local").items():
        assert found[key].equals(table.cast(found[key].schema)), key

assert run("day-1").state == "succeeded"
require_equal()
assert run("again").state == "nothing_new"
story.deliver_some()
story.spoil_ages(2)
failed = run("day-2")
assert (failed.state, failed.checks[0].value) == ("checks_failed", 2), failed
story.mend_ages()
story.spoil_rows(2)
done = run("day-2")
assert done.state == "succeeded", done.error
assert sum(one.rejected for one in done.counts) == 4
require_equal()
print("told", done.engine.get("engine"))
spark.stop()
"""


def _tell(folder: Path, *, master: str = "", remote: str = "") -> None:
    paths = os.pathsep.join((str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")))
    done = subprocess.run(
        [sys.executable, "-c", _STORY, str(folder), master, remote],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "told spark" in done.stdout, done.stderr[-4_000:]


def test_a_pipeline_runs_on_a_small_cluster(tmp_path: Path) -> None:
    _tell(tmp_path, master="local-cluster[2,1,1024]")


@pytest.mark.skipif(find_spec("grpc_status") is None, reason="grpcio-status is not installed")
def test_a_pipeline_runs_on_spark_connect(tmp_path: Path) -> None:
    _tell(tmp_path, remote="local[2]")
