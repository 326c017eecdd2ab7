"""The branch of a run: who removes it, and when it stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph.graph import Graph
from omnigraph.pipelines.branch import RunBranch

SCHEMA = "node City { name: String @key  people: I32? @index }"


@pytest.fixture
def branch(tmp_path: Path) -> RunBranch:
    graph = Graph.init(tmp_path / "g", SCHEMA, durability="process", auto_optimize=False)
    branch = RunBranch(graph, pipeline="cities", run_id="one", actor_id=None)
    branch.cut("main")
    for name in ("Bern", "Oslo"):
        branch.state({"loaded": name})
        graph.load([{"type": "City", "data": {"name": name}}], mode="append", branch=branch.name)
        branch.head = graph.commits.head_id(branch.name)
    return branch


def test_maintenance_after_the_last_write_of_a_run_does_not_keep_its_branch(
    branch: RunBranch,
) -> None:
    branch.graph.ensure_indices(branch=branch.name)
    assert branch.graph.commits.list(branch.name, limit=1)[0].is_maintenance
    branch.drop()
    assert branch.graph.branches.list() == ["main"]


def test_a_branch_that_another_process_has_written_to_stays(branch: RunBranch) -> None:
    row = {"type": "City", "data": {"name": "Rome"}}
    branch.graph.load([row], mode="append", branch=branch.name)
    branch.drop()
    assert branch.graph.branches.list() == ["main", branch.name]
