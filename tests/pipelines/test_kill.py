"""Incremental runs whose process is killed: the next run gives the graph of the model.

Each batch is run by a process of its own that dies at one point. The same run is then repeated: it
loads the batch, or recognises that it was published. Rows are appended, so a batch that was loaded
twice would be an error, and one that was lost would be missing.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from omnigraph.pipelines import RunState
from omnigraph.pipelines.record import read_record
from support.pipelines import Place

_DRIVER = """\
import sys
from omnigraph import failpoints
from omnigraph.pipelines import Pipeline
from omnigraph.spark import get_spark

path, run_id, step, point = sys.argv[1:]
get_spark(master="local[2]")

def report(text):
    if text.startswith(step):
        failpoints.disarm()
        failpoints.arm_all(f"{point}=die")

Pipeline.load(path).run(run_id=run_id, report=report)
"""
TEXT = """\
sources: {people: {format: parquet, path: in, incremental: {by: age}}}
load: [{node: Person, from: people, mode: append}]
"""
LOADING = [
    ("loading", "write.post_stage"),
    ("loading", "recovery.sidecar_write"),
    ("loading", "write.post_phase_b_pre_manifest_commit"),
    ("loading", "graph_publish.after_commit_append"),
]
PUBLISHING = [
    ("publishing", "write.post_stage"),
    ("publishing", "write.post_phase_b_pre_manifest_commit"),
    ("publishing", "graph_publish.after_commit_append"),
]


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("publish", ["direct", "merge"])
def test_after_every_kill_the_repeated_run_completes_the_batch(place: Place, publish: str) -> None:
    moments = LOADING if publish == "direct" else [LOADING[0], LOADING[3], *PUBLISHING]
    pipeline = place.pipeline(TEXT, publish)
    model: dict[str, int] = {}
    for batch, (step, point) in enumerate(moments, start=1):
        names = [f"p{batch}-{number}" for number in range(20)]
        model |= dict.fromkeys(names, batch)
        place.parquet(f"in/{batch}.parquet", name=names, age=[batch] * len(names))
        assert _die(pipeline.file.path, f"batch-{batch}", step, point) == 137
        run = pipeline.run(run_id=f"batch-{batch}")
        assert run.state is RunState.SUCCEEDED, run.error
        assert run.watermarks["people"].value == str(batch)
        assert place.people() == model
        # Recovery of a write that is put back is a commit of its own, without a run.
        stated = [one for one in place.graph.commits.list() if read_record(one.properties)]
        assert len(stated) == batch, (place.operations, point)
        assert place.graph.branches.list() == ["main"]
    assert pipeline.run().state is RunState.NOTHING_NEW


def _die(path: Path, run_id: str, step: str, point: str) -> int:
    found = subprocess.run(
        [sys.executable, "-c", _DRIVER, str(path), run_id, step, point],
        env=dict(os.environ),
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in found.stderr, found.stderr
    return found.returncode
