"""Drivers that are killed: all or nothing, and what is left behind is reclaimed.

The driver runs its tasks in its own process, so that it can be killed without a JVM; what it does
between the tasks and the commit is the same.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from omnigraph.clock import SystemClock
from omnigraph.graph import Graph
from omnigraph.write.stage.delta import WriteMode
from support.inline_jobs import inline_load
from support.loads import graph_lines

SCHEMA = "node Person { name: String @key }\nedge Knows: Person -> Person"

_DRIVER = """\
import os, sys
from omnigraph.graph import Graph
from omnigraph import failpoints
from omnigraph.write.stage.delta import WriteMode
from support.inline_jobs import InlineJobs, inline_load

class Dying(InlineJobs):
    def calls(self, stage, function, asked):
        found = super().calls(stage, function, asked)
        if sys.argv[3] == "staged":
            os._exit(9)
        return found

graph = Graph.open(sys.argv[1], durability="process")
if sys.argv[3] != "staged":
    failpoints.arm_all(f"{sys.argv[3]}=die")
inline_load(graph, sys.argv[2], jobs=Dying(), mode=WriteMode.APPEND)
"""

BEFORE = ("staged", "write.post_stage", "recovery.sidecar_write")
AFTER = ("write.post_phase_b_pre_manifest_commit", "graph_publish.after_commit_append")


@pytest.mark.parametrize("moment", [*BEFORE, *AFTER])
def test_a_load_whose_driver_is_killed_is_there_or_not(tmp_path: Path, moment: str) -> None:
    place = tmp_path / "graph"
    Graph.init(str(place), SCHEMA, durability="process").close()
    records = [{"type": "Person", "data": {"name": name}} for name in ("ann", "bob")]
    records.append({"edge": "Knows", "from": "ann", "to": "bob"})
    source = tmp_path / "in.jsonl"
    source.write_text("\n".join(map(json.dumps, records)))
    run = subprocess.run(
        [sys.executable, "-c", _DRIVER, str(place), str(source), moment],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode != 0, run.stderr
    assert "Traceback" not in run.stderr
    left = list((place / "__staging").rglob("*"))
    assert left, "the record of the dead job is still there"
    with Graph.open(str(place), durability="process") as graph:
        is_there = len(graph_lines(graph)) == 3
        assert is_there is (moment in AFTER)
        if not is_there:
            assert graph_lines(graph) == []
            inline_load(graph, str(source), mode=WriteMode.APPEND)
        assert len(graph_lines(graph)) == 3
        long_ago = SystemClock().now_us() / 1_000_000 - 3_600
        for path in left:
            if path.is_file():
                os.utime(path, (long_ago, long_ago))
        graph.cleanup(keep_versions=1, orphan_age_s=0, confirm=True)
        assert [path for path in (place / "__staging").rglob("*") if path.is_file()] == []
        assert len(list(place.glob("*/*/data/*.lance"))) == 2
        assert len(graph_lines(graph)) == 3
