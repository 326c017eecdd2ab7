"""The example with Spark's own declarative pipelines, run by Spark's command."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from omnigraph import Graph
from omnigraph.spark import java_problem
from support.pages import ROOT

EXAMPLE = ROOT / "examples" / "pipelines"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1_500),
    pytest.mark.skipif(java_problem() is not None, reason="there is no Java"),
]


def _run(folder: Path) -> None:
    command = Path(sys.executable).parent / "spark-pipelines"
    done = subprocess.run(
        [command, "run", "--spec", str(folder / "declarative" / "spark-pipeline.yml")],
        env={**os.environ, "SOCIAL_HOME": str(folder), "PYSPARK_PYTHON": sys.executable},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-6_000:]


def _ages(folder: Path) -> dict[str, int]:
    with Graph.open(folder / "social.omni") as graph:
        found = graph.query("query q() { match { $p: Person } return { $p.name, $p.age } }")
        return {row["p.name"]: row["p.age"] for row in found.to_pylist()}


def test_a_flow_of_spark_loads_each_file_once(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLE / "declarative", tmp_path / "declarative")
    spec = tmp_path / "declarative" / "spark-pipeline.yml"
    spec.write_text(spec.read_text().replace("/srv/social", str(tmp_path)))
    people = tmp_path / "in" / "people"
    people.mkdir(parents=True)
    header = "full_name,age,country,updated_at\n"
    (people / "1.csv").write_text(f"{header}ann,30,de,2026-01-01T00:00:00Z\n")
    Graph.init(tmp_path / "social.omni", (EXAMPLE / "social.pg").read_text()).close()
    _run(tmp_path)
    assert _ages(tmp_path) == {"ann": 30}
    with Graph.open(tmp_path / "social.omni") as graph:
        graph.mutate('query q() { update Person set { age: 31 } where name = "ann" }')
    (people / "2.csv").write_text(f"{header}bob,40,fr,2026-01-02T00:00:00Z\n")
    _run(tmp_path)
    # A file that was read again would have brought the old age back.
    assert _ages(tmp_path) == {"ann": 31, "bob": 40}
