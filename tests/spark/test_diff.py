"""Differences that tasks find are those that this process finds."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from omnigraph.changes.commit_changes import changes_between
from omnigraph.changes.diff import difference
from omnigraph.changes.selection import Op, Selection
from omnigraph.graph import Graph, ReadTarget
from omnigraph.manifest import Snapshot
from omnigraph.spark.diff import DiffPlan, plan_diff
from support.places import repository_of

SCHEMA = """
node Doc { slug: String @key  note: String?  rank: F64?  body: Blob? }
node Tag { name: String @key }
edge Cites: Doc -> Doc { weight: F64? }
"""

Row = dict[str, Any]


def new_graph(root: Path) -> Graph:
    return Graph.init(str(root / "g.omni"), SCHEMA, durability="process", auto_optimize=False)


def doc(slug: str, **data: object) -> Row:
    return {"type": "Doc", "data": {"slug": slug, **data}}


def cites(source: str, target: str) -> Row:
    return {"edge": "Cites", "from": source, "to": target, "data": {"id": f"{source}-{target}"}}


def load(graph: Graph, *records: Row, branch: str = "main") -> None:
    lines = "\n".join(json.dumps(record) for record in records)
    graph.load(lines.encode(), mode="merge", branch=branch, on_duplicate="last")


def travelled(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


def by_tasks(plan: DiffPlan) -> list[Row]:
    """Run the tasks of a plan one after another, with a shuffle between the two kinds."""
    numbers = pa.record_batch({"id": pa.array(range(len(plan.tasks)), pa.int64())})
    batches = list(travelled(plan.reader)(iter([numbers])))
    if not batches:
        return []
    candidates = pa.Table.from_batches(batches)
    rows: list[Row] = []
    for bucket in range(plan.buckets):
        mine = candidates.filter(pa.compute.equal(candidates["bucket"], bucket))
        for batch in travelled(plan.comparer)(iter(mine.to_batches(max_chunksize=2))):
            rows += batch.to_pylist()
    return rows


def both(graph: Graph, before: ReadTarget, after: ReadTarget) -> tuple[Snapshot, Snapshot]:
    return graph.snapshot_of(before), graph.snapshot_of(after)


def as_change(row: Row) -> Row:
    change: Row = {
        "kind": row["entity_kind"],
        "type": {"id": row["type_id"], "name": row["type_name"]},
        "id": row["id"],
        "op": row["op"],
    }
    for side in ("before", "after"):
        if row[side] is not None:
            change[side] = json.loads(row[side])
    return change


def as_net(row: Row) -> Row:
    names = ("type_name", "id", "op", "published_dataset_version")
    shape = {"kind": row["entity_kind"], **{name: row[name] for name in names}}
    ends = {"src": row["src"], "dst": row["dst"]}
    return shape | ({"endpoints": ends} if row["entity_kind"] == "edge" else {})


names = st.sampled_from(["a", "b", "c", "d", "e"])
steps = st.one_of(
    st.tuples(st.just("doc"), names, st.sampled_from([None, "x", "y"])),
    st.tuples(st.just("body"), names, st.sampled_from(["base64:AA==", "base64:AQ=="])),
    st.tuples(st.just("cites"), names, names),
    st.tuples(st.just("delete"), names, st.none()),
    st.tuples(st.just("optimize"), st.none(), st.none()),
)
Work = list[tuple[str, Any, Any]]


def run(graph: Graph, step: tuple[str, Any, Any], branch: str) -> None:
    what, first, second = step
    if what == "doc":
        load(graph, doc(first, note=second, rank=-0.0), branch=branch)
    elif what == "body":
        load(graph, doc(first, body=second), branch=branch)
    elif what == "delete":
        graph.mutate(f'query d() {{ delete Doc where slug = "{first}" }}', branch=branch)
    elif what == "optimize":
        graph.optimize()
    else:
        load(graph, doc(first), doc(second), cites(first, second), branch=branch)


@settings(suppress_health_check=list(HealthCheck), max_examples=8)
@given(
    st.tuples(*(st.lists(steps, max_size=size) for size in (3, 4, 4))),
    st.sampled_from([None, Selection.of(ops=["update", "delete"]), Selection.of(types=["Doc"])]),
    st.integers(1, 3),
)
def test_tasks_find_what_this_process_finds(
    tmp_path_factory: pytest.TempPathFactory,
    works: tuple[Work, Work, Work],
    selection: Selection | None,
    bucket_rows: int,
) -> None:
    graph = new_graph(tmp_path_factory.mktemp("diff"))
    shared, here, there = works
    for step in shared:
        run(graph, step, "main")
    start = ReadTarget.commit(graph.list_commits()[0].graph_commit_id)
    graph.branch_create("side")
    for branch, work in (("main", here), ("side", there)):
        for step in work:
            run(graph, step, branch)
    main, side = ReadTarget.branch("main"), ReadTarget.branch("side")
    for before, after in ((start, main), (side, main), (main, side), (main, start)):
        pair = both(graph, before, after)
        wanted = selection or Selection()
        store = repository_of(graph).store
        rows = by_tasks(plan_diff(*pair, wanted, store.settings, bucket_rows=bucket_rows))
        order = [str(op) for op in Op]
        rows.sort(
            key=lambda row: (
                row["entity_kind"] == "edge",
                row["type_id"],
                row["id"].encode(),
                order.index(row["op"]),
            )
        )
        assert [as_change(row) for row in rows] == list(changes_between(*pair, wanted))
        net = [json.dumps(change, sort_keys=True) for change in difference(*pair, wanted).changes]
        assert sorted(json.dumps(as_net(row), sort_keys=True) for row in rows) == sorted(net)


def test_tasks_go_across_schema_changes_as_this_process_does(tmp_path: Path) -> None:
    graph = new_graph(tmp_path)
    load(graph, *(doc(f"d{number}", note="x", rank=1.5) for number in range(4)))
    start = ReadTarget.commit(graph.list_commits()[0].graph_commit_id)
    later = SCHEMA.replace("note: String?  rank: F64?", 'said: String? @rename_from("note")')
    graph.apply_schema(later.replace("body: Blob?", "body: Blob?  size: I32 @default(3)"))
    load(graph, doc("d1", said="x", size=3), doc("d2", said="y", size=3), doc("new", size=4))
    graph.mutate('query d() { delete Doc where slug = "d3" }')
    main = ReadTarget.branch("main")
    for before, after in ((start, main), (main, start)):
        pair = both(graph, before, after)
        plan = plan_diff(*pair, Selection(), repository_of(graph).store.settings, bucket_rows=2)
        header, *local = changes_between(*pair, Selection())
        assert header.keys() == {"schema_changes"}
        rows = sorted(by_tasks(plan), key=lambda row: row["id"])
        assert [as_change(row) for row in rows] == local
    _, *local = changes_between(*both(graph, start, main), Selection())
    assert [change["id"] for change in local] == ["d2", "d3", "new"]


def test_only_fragments_that_differ_have_a_task(tmp_path: Path) -> None:
    graph = new_graph(tmp_path)
    load(graph, *(doc(f"d{number}") for number in range(50)))
    load(graph, {"type": "Tag", "data": {"name": "t"}})
    start = ReadTarget.commit(graph.list_commits()[0].graph_commit_id)
    load(graph, doc("new"))
    graph.mutate('query d() { delete Doc where slug = "d7" }')
    pair = both(graph, start, ReadTarget.branch("main"))
    plan = plan_diff(*pair, Selection(), repository_of(graph).store.settings)
    assert [table.entity_type.name for table in plan.tables] == ["Doc"]
    read, moved = (task for task in plan.tasks)
    assert (len(read.after_ids), read.before_ids, read.moved) == (1, (), ())
    assert (moved.after_ids, moved.before_ids, len(moved.moved)) == ((), (), 1)
    candidates = list(plan.reader(iter([pa.record_batch({"id": pa.array([0, 1])})])))
    assert sum(batch.num_rows for batch in candidates) == 2


def test_what_is_equal_needs_no_task(tmp_path: Path) -> None:
    graph = new_graph(tmp_path)
    load(graph, doc("a"))
    pair = both(graph, ReadTarget.branch("main"), ReadTarget.branch("main"))
    assert plan_diff(*pair, Selection(), repository_of(graph).store.settings).tasks == ()


@pytest.mark.spark
def test_spark_finds_the_same_in_the_same_order(spark: SparkSession, tmp_path: Path) -> None:
    graph = new_graph(tmp_path)
    load(graph, *(doc(f"d{number}", note="x") for number in range(9)), cites("d1", "d2"))
    start = ReadTarget.commit(graph.list_commits()[0].graph_commit_id)
    graph.branch_create("side")
    load(graph, doc("d3", note="y", body="base64:AA=="), doc("é"), cites("d3", "é"), branch="side")
    graph.mutate('query d() { delete Doc where slug = "d1" }', branch="side")
    side = ReadTarget.branch("side")
    local = list(graph.changes_between(start, side, engine="local"))
    assert list(graph.changes_between(start, side, spark=spark)) == local
    assert list(graph.changes_between(side, side, spark=spark)) == []
    frame = graph.diff(start, side).to_spark(spark)
    assert frame.where("op = 'delete'").count() == 2
