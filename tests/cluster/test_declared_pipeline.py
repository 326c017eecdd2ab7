"""Pipelines of a cluster, by their names; what they load is the applied graph."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph.cluster.applied import GraphNotAppliedError
from omnigraph.cluster.declared_pipeline import (
    ClusterFilesError,
    PipelineNotDeclaredError,
    declared_pipeline,
)
from support.terminal import Terminal

PIPELINE = """\
version: 1
name: nightly
target: {graph: papers, publish: direct}
sources: {rows: {format: csv, path: rows.csv, schema: doi STRING}}
load: [{node: Paper, from: rows, mode: merge}]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    files = {
        "cluster.yaml": "version: 1\ngraphs: {papers: {schema: papers.pg}}\n"
        "pipelines: {nightly: {file: in/nightly.yaml}, lost: {file: lost.yaml}}\n",
        "papers.pg": "node Paper { doi: String @key }\n",
        "in/nightly.yaml": PIPELINE,
        "in/rows.csv": "x\n",
        "lost.yaml": PIPELINE.replace("papers", "paper"),
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_a_pipeline_needs_an_applied_graph(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(PipelineNotDeclaredError, match="declared: lost, nightly"):
        declared_pipeline(str(folder), "nightli")
    with pytest.raises(ClusterFilesError, match=r"lost.yaml: there is no graph 'paper'"):
        declared_pipeline(str(folder), "lost")
    with pytest.raises(ClusterFilesError, match="no such folder"):
        declared_pipeline(str(folder / "none"), "nightly")
    omnigraph = Terminal(capsys)
    (folder / "lost.yaml").write_text(PIPELINE)
    refused = omnigraph("pipeline", "status", "nightly", "--cluster", str(folder))
    assert (refused.code, "[cluster_state_missing]" in refused.err) == (1, True), refused.err
    for command in ("import", "apply"):
        assert omnigraph("cluster", command, "--config", str(folder)).code == 0
    found = declared_pipeline(str(folder), "nightly")
    assert found.file == folder / "in" / "nightly.yaml"
    assert found.graph.endswith("graphs/papers.omni")
    status = omnigraph("pipeline", "status", "nightly", "--cluster", str(folder), "--json")
    assert status.json == {"pipeline": "nightly", "last_run": None, "watermarks": {}}
    added = "version: 1\ngraphs: {papers: {schema: papers.pg}, more: {schema: papers.pg}}\n"
    (folder / "cluster.yaml").write_text(added + "pipelines: {nightly: {file: lost.yaml}}\n")
    (folder / "lost.yaml").write_text(PIPELINE.replace("papers", "more"))
    with pytest.raises(GraphNotAppliedError, match="applied: papers"):
        declared_pipeline(str(folder), "nightly")
    both = omnigraph("pipeline", "status", "nightly", "--cluster", ".", "--store", "x")
    assert "mutually exclusive" in both.err
    missing = omnigraph("pipeline", "status", "nightly.yaml")
    assert (missing.code, "does not exist" in missing.err) == (2, True)


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_a_pipeline_of_a_cluster_loads_its_graph(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "lost.yaml").write_text(PIPELINE)
    omnigraph = Terminal(capsys)
    for command in ("import", "apply"):
        assert omnigraph("cluster", command, "--config", str(folder)).code == 0
    run = omnigraph("pipeline", "run", "nightly", "--cluster", str(folder), "--json")
    assert (run.code, run.json["counts"][0]["inserted"]) == (0, 1)
    status = omnigraph("pipeline", "status", "nightly", "--cluster", str(folder), "--json")
    assert status.json["last_run"]["run_id"] == run.json["run_id"]
