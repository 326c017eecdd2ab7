"""Compaction and indexes as tasks: the same tables as in process, all or nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from omnigraph.clock import SystemClock
from omnigraph.graph import Graph
from omnigraph.maintenance.optimize import MaintenanceReport
from omnigraph.maintenance.workers import SegmentPlan
from omnigraph.spark.maintenance import SEGMENTS_MAX, SparkWorkers, parts_of, spark_workers
from omnigraph.store.records import IndexKind, IndexSpec, ScanRequest
from support.inline_jobs import InlineJobs
from support.loads import graph_lines
from support.places import repository_of, session_of
from support.scans import coverage_of

SCHEMA = """
node Doc { slug: String @key  note: String? @index  size: I32? @index }
edge Cites: Doc -> Doc
"""
QUERIES = (
    "query a() { match { $d: Doc $d.size > 7 } return { $d.slug } order { $d.slug } }",
    """query b() {
        match { $d: Doc }
        return { $d.slug, bm25($d.note, "fox") as s }
        order { bm25($d.note, "fox") desc }
        limit 3
    }""",
)
TABLES = ("node:Doc", "edge:Cites")


def filled(root: Path, commits: int = 4) -> Graph:
    graph = Graph.init(str(root), SCHEMA, durability="process", auto_optimize=False)
    for number in range(commits):
        docs = [
            {
                "type": "Doc",
                "data": {"slug": f"d{number}-{row}", "note": f"a fox {row}", "size": number * row},
            }
            for row in range(5)
        ]
        edge = {"edge": "Cites", "from": f"d{number}-0", "to": "d0-1"}
        lines = "\n".join(json.dumps(record) for record in [*docs, edge])
        graph.load(lines.encode(), mode="append")
    graph.mutate('query d() { delete Doc where slug = "d1-3" }')
    return graph


def by_tasks(graph: Graph, jobs: InlineJobs, *, segment_rows_min: int = 6) -> MaintenanceReport:
    with spark_workers(repository_of(graph), jobs) as lent:
        workers = SparkWorkers(lent.settings, lent.datasets, jobs, segment_rows_min)
        return session_of(graph).maintenance.optimize(workers)


def row_ids(graph: Graph, key: str) -> dict[str, int]:
    request = ScanRequest(columns=("id",), with_row_id=True)
    rows = graph.snapshot().open(key).scan(request).read_all()
    return dict(zip(*(column.to_pylist() for column in rows.columns), strict=True))


def test_tasks_leave_the_tables_that_this_process_leaves(tmp_path: Path) -> None:
    here, there = filled(tmp_path / "here"), filled(tmp_path / "there")
    jobs = InlineJobs()
    rows = {key: row_ids(there, key) for key in TABLES}
    before = len(there.list_commits())
    local, spark = here.optimize(), by_tasks(there, jobs)
    assert (local.engine, spark.engine) == ("local", "spark")
    assert set(jobs.stages) == {"compact", "index"}
    assert len(there.list_commits()) == before + 1
    assert [
        (table.table_key, table.fragments_removed, table.fragments_added)
        for table in spark.tables[:2]
    ] == [
        (table.table_key, table.fragments_removed, table.fragments_added)
        for table in local.tables[:2]
    ]
    assert {key: row_ids(there, key) for key in TABLES} == rows
    for key, column in ((TABLES[0], "id"), (TABLES[0], "size"), (TABLES[1], "src")):
        assert coverage_of(there.snapshot().open(key), column) is None
    for query in QUERIES:
        assert there.query(query).to_pylist() == here.query(query).to_pylist()
    assert by_tasks(there, jobs).commit is None


def test_an_index_of_addresses_is_built_in_parts_that_answer_together(tmp_path: Path) -> None:
    graph = filled(tmp_path / "g")
    plan = SegmentPlan(IndexSpec("size", IndexKind.BTREE), (0, 1, 2, 3))
    at = graph.snapshot().open(TABLES[0]).at
    store = repository_of(graph).store
    workers = SparkWorkers(store.settings, store.datasets, InlineJobs(), segment_rows_min=5)
    segments = workers.index(at, [plan])
    assert [segment.fragment_ids for segment in segments] == [(0,), (1, 2), (3,)]
    staged = store.datasets.stage_create_index(at, segments=segments)
    view = store.datasets.open_staged(staged)
    assert coverage_of(view, "size") is None
    assert [len(index.segments) for index in view.indexes()] == [3]


@pytest.mark.parametrize("kind", [IndexKind.INVERTED, IndexKind.IVF_HNSW_SQ, IndexKind.NGRAM])
def test_indexes_whose_answers_depend_on_the_whole_are_not_cut(kind: IndexKind) -> None:
    plan = SegmentPlan(IndexSpec("x", kind), tuple(range(30)))
    assert parts_of(plan, dict.fromkeys(range(30), 10), rows_min=1) == [plan]


def test_an_index_has_a_bounded_number_of_parts() -> None:
    plan = SegmentPlan(IndexSpec("x", IndexKind.BTREE), tuple(range(1_000)))
    parts = parts_of(plan, dict.fromkeys(range(1_000), 10), rows_min=1)
    assert len(parts) <= SEGMENTS_MAX
    assert [number for part in parts for number in part.fragment_ids] == list(range(1_000))


def test_a_cleanup_beside_running_tasks_takes_none_of_their_files(tmp_path: Path) -> None:
    graph = filled(tmp_path / "g")
    other = Graph.open(graph.uri, durability="process", auto_optimize=False)

    class Cleaned(InlineJobs):
        def calls(
            self, stage: str, function: Callable[[Any, int], Any], asked: Sequence[Any]
        ) -> list[Any]:
            answers = super().calls(stage, function, asked)
            other.cleanup(keep_versions=1, orphan_age_s=0, confirm=True)
            return answers

    lines = graph_lines(graph)
    assert by_tasks(graph, Cleaned()).commit is not None
    assert graph_lines(graph) == lines
    assert list((tmp_path / "g" / "__staging").glob("*.json")) == []


# -- killed drivers --------------------------------------------------------------------------------

_DRIVER = """\
import os, sys
from omnigraph.graph import Graph
from omnigraph import failpoints
from omnigraph.spark.maintenance import spark_workers
from support.inline_jobs import InlineJobs

class Dying(InlineJobs):
    def calls(self, stage, function, asked):
        found = super().calls(stage, function, asked)
        if sys.argv[2] == stage:
            os._exit(9)
        return found

graph = Graph.open(sys.argv[1], durability="process", auto_optimize=False)
if "." in sys.argv[2]:
    failpoints.arm_all(f"{sys.argv[2]}=die")
with spark_workers(graph._session.repository, Dying()) as workers:
    graph._session.maintenance.optimize(workers)
"""

BEFORE = ("compact", "index", "write.post_stage", "recovery.sidecar_write")
AFTER = ("write.post_phase_b_pre_manifest_commit", "graph_publish.after_commit_append")


@pytest.mark.parametrize("moment", [*BEFORE, *AFTER])
def test_a_driver_that_is_killed_leaves_the_rows_as_they_were(tmp_path: Path, moment: str) -> None:
    place = tmp_path / "g"
    graph = filled(place)
    lines, rows = graph_lines(graph), {key: row_ids(graph, key) for key in TABLES}
    graph.close()
    paths = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    run = subprocess.run(
        [sys.executable, "-c", _DRIVER, str(place), moment],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode != 0, run.stderr
    assert "Traceback" not in run.stderr
    left = [path for path in (place / "__staging").rglob("*") if path.is_file()]
    assert left, "the record of the dead run is still there"
    with Graph.open(str(place), durability="process", auto_optimize=False) as graph:
        assert graph_lines(graph) == lines
        is_done = len(graph.snapshot().open(TABLES[0]).fragments()) == 1
        assert is_done is (moment in AFTER)
        graph.optimize()
        assert {key: row_ids(graph, key) for key in TABLES} == rows
        assert coverage_of(graph.snapshot().open(TABLES[0]), "size") is None
        long_ago = SystemClock().now_us() / 1_000_000 - 3_600
        for path in left:
            if path.exists():
                os.utime(path, (long_ago, long_ago))
        graph.cleanup(keep_versions=1, orphan_age_s=0, confirm=True)
        assert [path for path in (place / "__staging").rglob("*") if path.is_file()] == []
        assert graph_lines(graph) == lines
        assert len(list(place.glob("nodes/*/data/*.lance"))) == 1


@pytest.mark.spark
def test_spark_compacts_and_indexes(spark: SparkSession, tmp_path: Path) -> None:
    graph = filled(tmp_path / "g")
    lines = graph_lines(graph)
    report = graph.optimize(spark=spark)
    assert report.engine == "spark"
    assert report.commit is not None
    assert len(graph.snapshot().open(TABLES[0]).fragments()) == 1
    assert graph_lines(graph) == lines
    assert graph.optimize(engine="local").commit is None
