"""Merges by tasks: the outcome, the conflicts and the rows of a merge in process."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from omnigraph.graph import Graph, ReadTarget
from omnigraph.merge.conflicts import MergeConflictError
from omnigraph.merge.merger import Merger
from omnigraph.merge.request import MergeRequest
from omnigraph.names import BranchName
from omnigraph.progress import Progress
from omnigraph.spark.jobs import Jobs
from omnigraph.spark.merge import spark_merge_workers
from omnigraph.store.records import ScanRequest
from support.inline_engine import SMALL, InlineEngine, take_everything
from support.inline_jobs import InlineJobs
from support.loads import graph_lines
from support.places import repository_of, session_of

SCHEMA = """
node Doc { slug: String @key  note: String?  size: F64?  body: Blob? }
edge Cites: Doc -> Doc @card(0..2)
"""
Row = dict[str, Any]


def new_graph(root: Path) -> Graph:
    return Graph.init(str(root), SCHEMA, durability="process", auto_optimize=False)


def doc(slug: str, **data: object) -> Row:
    return {"type": "Doc", "data": {"slug": slug, **data}}


def cites(source: str, target: str) -> Row:
    return {"edge": "Cites", "from": source, "to": target, "data": {"id": f"{source}-{target}"}}


def load(graph: Graph, branch: str, *records: Row) -> None:
    lines = "\n".join(json.dumps(record) for record in records)
    graph.load(lines.encode(), mode="merge", branch=branch, on_duplicate="last")


names = st.sampled_from(["a", "b", "c", "d", "e", "f"])
steps = st.one_of(
    st.tuples(st.just("doc"), names, st.sampled_from([None, "x", "y"])),
    st.tuples(st.just("body"), names, st.sampled_from(["base64:AA==", "base64:AQ=="])),
    st.tuples(st.just("cites"), names, names),
    st.tuples(st.just("delete"), names, st.none()),
)
Work = list[tuple[str, Any, Any]]


def run(graph: Graph, branch: str, work: Work) -> None:
    for what, first, second in work:
        if what == "doc":
            load(graph, branch, doc(first, note=second, size=-0.0))
        elif what == "body":
            load(graph, branch, doc(first, body=second))
        elif what == "cites":
            load(graph, branch, doc(first), doc(second), cites(first, second))
        else:
            graph.mutate(f'query d() {{ delete Doc where slug = "{first}" }}', branch=branch)


def row_ids(graph: Graph, branch: str) -> dict[str, dict[str, int]]:
    snapshot = graph.snapshot_of(ReadTarget.branch(branch))
    request = ScanRequest(columns=("id",), with_row_id=True)
    found = {}
    for key in ("node:Doc", "edge:Cites"):
        rows = snapshot.open(key).scan(request).read_all()
        found[key] = dict(zip(*(column.to_pylist() for column in rows.columns), strict=True))
    return found


def merged(graph: Graph, engine: str, target: str, **how: Any) -> object:
    """Merge, and return everything that a caller is told."""
    source = "draft" if target == "main" else "main"
    try:
        result = graph.branch_merge(source, target, engine=engine, **how)
    except MergeConflictError as error:
        return str(error), error.conflicts
    assert result.engine in (engine, "local")
    return result.outcome, result.counts, result.conflicts, dict(result.resolved)


@settings(suppress_health_check=list(HealthCheck), max_examples=8)
@given(
    st.tuples(*(st.lists(steps, max_size=4) for _ in range(3))),
    st.sampled_from(["main", "draft"]),
    st.sampled_from([{}, {"prefer": "source"}, {"strategy": "property"}, {"prefer": "target"}]),
)
def test_tasks_and_this_process_merge_alike(
    tmp_path_factory: pytest.TempPathFactory,
    works: tuple[Work, Work, Work],
    target: str,
    how: dict[str, str],
) -> None:
    root = tmp_path_factory.mktemp("merge")
    graph = new_graph(root / "here")
    shared, mine, theirs = works
    run(graph, "main", [("doc", "a", None), ("cites", "b", "c"), *shared])
    graph.branch_create("draft")
    run(graph, "draft", mine)
    run(graph, "main", theirs)
    shutil.copytree(root / "here", root / "there")
    there = Graph.open(str(root / "there"), durability="process", auto_optimize=False)
    with pytest.MonkeyPatch.context() as patch:
        take_everything(patch)
        by_tasks = merged(there, "spark", target, **how)
    assert by_tasks == merged(graph, "local", target, **how)
    assert graph_lines(there, target) == graph_lines(graph, target)
    assert row_ids(there, target) == row_ids(graph, target)
    assert list((root / "there" / "__staging").rglob("*.json")) == []


def test_rows_are_written_by_tasks_and_only_places_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = new_graph(tmp_path / "g")
    load(graph, "main", *(doc(f"d{number}", note="old") for number in range(20)))
    graph.branch_create("draft")
    load(graph, "draft", *(doc(f"d{number}", note="new") for number in range(15, 30)))
    load(graph, "main", doc("d0", note="theirs"))
    inline: InlineEngine = take_everything(monkeypatch)
    result = graph.branch_merge("draft")
    assert result.engine == "spark"
    assert inline.jobs.stages == ["merge", "write", "write"]
    assert [(each.inserted, each.updated) for each in result.counts] == [(10, 5)]
    assert len(graph.snapshot().open("node:Doc").fragments()) == 2 + 4 + 2


class _Cleaning(InlineJobs):
    """Cleans up beside the tasks, as another process might."""

    def __init__(self, uri: str) -> None:
        super().__init__()
        self._graph = Graph.open(uri, durability="process", auto_optimize=False)

    def calls(self, stage: str, function: Any, asked: Any) -> list[Any]:
        answers = super().calls(stage, function, asked)
        self._graph.cleanup(keep_versions=1, orphan_age_s=0, confirm=True)
        return answers


def test_a_cleanup_beside_a_merge_takes_none_of_its_files(tmp_path: Path) -> None:
    graph = new_graph(tmp_path / "g")
    load(graph, "main", *(doc(f"d{number}") for number in range(9)))
    graph.branch_create("draft")
    load(graph, "draft", *(doc(f"d{number}", note="new") for number in range(5, 12)))
    load(graph, "main", doc("other"))
    resolve = repository_of(graph).branches.resolve
    request = MergeRequest(source=resolve(BranchName("draft")), target=resolve(BranchName("main")))
    merger = Merger(repository_of(graph), session_of(graph).committer)
    snapshots = merger.snapshots(request)
    with spark_merge_workers(repository_of(graph), snapshots, _Cleaning(graph.uri)) as lent:
        workers = replace(lent, tuning=SMALL)
        merger.merge(request, workers)
    assert len(graph_lines(graph)) == 13
    assert list((tmp_path / "g" / "__staging").rglob("rows-*")) == []


@pytest.mark.spark
def test_spark_merges(spark: SparkSession, tmp_path: Path) -> None:
    graph = new_graph(tmp_path / "g")
    load(graph, "main", *(doc(f"d{number}", note="old") for number in range(9)), cites("d1", "d2"))
    graph.branch_create("draft")
    load(graph, "draft", doc("d3", note="mine"), doc("new"), cites("new", "d3"))
    graph.mutate('query d() { delete Doc where slug = "d1" }', branch="draft")
    load(graph, "main", doc("d4", note="theirs"))
    resolve = repository_of(graph).branches.resolve
    request = MergeRequest(source=resolve(BranchName("draft")), target=resolve(BranchName("main")))
    merger = Merger(repository_of(graph), session_of(graph).committer)
    jobs = Jobs(spark, tag="omnigraph-merge", progress=Progress())
    with spark_merge_workers(repository_of(graph), merger.snapshots(request), jobs) as lent:
        workers = replace(lent, tuning=replace(SMALL, bucket_rows=6))
        result = merger.merge(request, workers)
    assert (result.engine, result.outcome) == ("spark", "merged")
    lines = "\n".join(graph_lines(graph))
    assert '"mine"' in lines
    assert '"theirs"' in lines
    assert "d1" not in lines
    assert graph.branch_merge("draft", spark=spark).outcome == "already_up_to_date"


@pytest.mark.spark
def test_conflicts_become_a_frame(spark: SparkSession, tmp_path: Path) -> None:
    graph = new_graph(tmp_path / "g")
    load(graph, "main", doc("d1", note="old"))
    graph.branch_create("draft")
    load(graph, "draft", doc("d1", note="mine"))
    load(graph, "main", doc("d1", note="theirs"))
    with pytest.raises(MergeConflictError) as caught:
        graph.branch_merge("draft")
    [row] = caught.value.conflicts.to_spark(spark).collect()
    assert (row["type_name"], row["entity_id"], row["kind"]) == ("Doc", "d1", "divergent_update")
