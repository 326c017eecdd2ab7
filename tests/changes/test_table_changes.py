"""What differs between any two versions of a table, against dictionaries."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omnigraph.changes.compare import differing_values
from omnigraph.changes.table_changes import RowChanges, candidates, table_changes
from omnigraph.graph import Graph
from omnigraph.manifest import Snapshot

SCHEMA = """
node Item {
    name: String @key
    size: F64?
    marks: [String]?
    at: Vector(2)?
    body: Blob?
}
"""
KEY = "node:Item"
COLUMNS = ("id", "name", "size", "marks", "at", "body")

Row = tuple[object, ...]
Rows = dict[str, Row]

names = st.sampled_from(["a", "b", "c", "d", "e", "f"])
records = st.fixed_dictionaries(
    {
        "name": names,
        "size": st.sampled_from([None, 0.0, -0.0, 1.5]),
        "marks": st.sampled_from([None, [], ["x"], ["x", "y"]]),
        "at": st.sampled_from([None, [1.0, 2.0], [1.0, -0.0]]),
        "body": st.sampled_from([None, "base64:", "base64:YQ==", "base64:Yg=="]),
    }
)
steps = st.one_of(
    st.tuples(st.just("merge"), st.lists(records, min_size=1, max_size=3)),
    st.tuples(st.just("delete"), names),
    st.tuples(st.just("optimize"), st.none()),
    st.tuples(st.just("side"), st.lists(records, min_size=1, max_size=2)),
)


def lines(rows: list[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps({"type": "Item", "data": row}).encode() + b"\n" for row in rows)


def as_row(record: dict[str, Any]) -> Row:
    size = record["size"]
    bits = None if size is None else struct.pack("<d", size)
    at = record["at"]
    vector = None if at is None else struct.pack("<2f", *at)
    marks = record["marks"]
    return bits, None if marks is None else tuple(marks), vector, record["body"]


class History:
    """A graph with two branches, and what each snapshot should hold."""

    def __init__(self, root: Path) -> None:
        self.graph = Graph.init(
            str(root / "g.omni"), SCHEMA, durability="process", auto_optimize=False
        )
        self.graph.branch_create("side")
        self.main: Rows = {}
        self.side: Rows = {}
        self.versions: list[tuple[Snapshot, Rows]] = []
        self.note("main", self.main)

    def note(self, branch: str, rows: Rows) -> None:
        self.graph.sync_branch(branch)
        self.versions.append((self.graph.snapshot(), dict(rows)))

    def run(self, step: str, value: Any) -> None:
        if step == "delete":
            text = f'query d() {{ delete Item where name = "{value}" }}'
            self.graph.mutate(text, branch="main")
            self.main.pop(value, None)
        elif step == "optimize":
            self.graph.optimize()
        else:
            branch, rows = ("main", self.main) if step == "merge" else ("side", self.side)
            self.graph.load(lines(value), mode="merge", branch=branch, on_duplicate="last")
            rows |= {record["name"]: as_row(record) for record in value}
        self.note("side" if step == "side" else "main", self.side if step == "side" else self.main)


def found(before: Snapshot, after: Snapshot) -> RowChanges:
    return table_changes(before.open(KEY), after.open(KEY), columns=COLUMNS, blobs=("body",))


def check(root: Path, work: list[tuple[str, Any]]) -> None:
    history = History(root)
    for step, value in work:
        history.run(step, value)
    for before, old in history.versions:
        for after, new in history.versions:
            changes = found(before, after)
            assert changes.inserted.ids.to_pylist() == sorted(new.keys() - old.keys())
            assert changes.deleted.ids.to_pylist() == sorted(old.keys() - new.keys())
            differing = sorted(key for key in old.keys() & new.keys() if old[key] != new[key])
            assert changes.updated_before.ids.to_pylist() == differing
            assert changes.updated_after.ids.to_pylist() == differing


@settings(suppress_health_check=list(HealthCheck), max_examples=25)
@given(st.lists(steps, min_size=1, max_size=6))
def test_any_two_versions_differ_by_what_the_model_says(
    tmp_path_factory: pytest.TempPathFactory, work: list[tuple[str, Any]]
) -> None:
    check(tmp_path_factory.mktemp("changes"), work)


@pytest.mark.slow
@settings(suppress_health_check=list(HealthCheck), max_examples=300)
@given(st.lists(steps, min_size=1, max_size=14))
def test_any_two_versions_of_a_long_history_differ_by_what_the_model_says(
    tmp_path_factory: pytest.TempPathFactory, work: list[tuple[str, Any]]
) -> None:
    check(tmp_path_factory.mktemp("changes"), work)


def test_fragments_that_are_the_same_on_both_sides_are_not_read(tmp_path: Path) -> None:
    graph = Graph.init(str(tmp_path / "g.omni"), SCHEMA, durability="process", auto_optimize=False)
    many = [{"name": f"n{number}"} for number in range(500)]
    graph.load(lines(many), mode="append")
    before = graph.snapshot()
    graph.load(lines([{"name": "n7", "size": 1.0}, {"name": "new"}]), mode="merge")
    gone, came = candidates(before.open(KEY), graph.snapshot().open(KEY))
    assert gone.ids.to_pylist() == ["n7"]
    assert came.ids.to_pylist() == ["n7", "new"]


def test_a_table_that_came_or_went_is_all_inserts_or_all_deletes(tmp_path: Path) -> None:
    graph = Graph.init(str(tmp_path / "g.omni"), SCHEMA, durability="process")
    graph.load(lines([{"name": "a"}, {"name": "b"}]), mode="append")
    handle = graph.snapshot().open(KEY)
    assert table_changes(None, handle, columns=COLUMNS).inserted.ids.to_pylist() == ["a", "b"]
    assert table_changes(handle, None, columns=COLUMNS).deleted.ids.to_pylist() == ["a", "b"]
    assert table_changes(handle, handle, columns=COLUMNS, blobs=("body",)).is_empty


NAN = float("nan")


@pytest.mark.parametrize(
    ("kind", "left", "right", "differs"),
    [
        (pa.float64(), NAN, NAN, False),
        (pa.float64(), 0.0, -0.0, True),
        (pa.float32(), None, 0.0, True),
        (pa.utf8(), "", None, True),
        (pa.utf8(), "é", "e\u0301", True),
        (pa.int64(), 0, None, True),
        (pa.bool_(), False, None, True),
        (pa.date32(), 1, 1, False),
        (pa.list_(pa.utf8()), [], None, True),
        (pa.list_(pa.utf8()), ["a", None], ["a", None], False),
        (pa.list_(pa.utf8()), ["a", None], [None, "a"], True),
        (pa.list_(pa.float64()), [NAN], [NAN], False),
        (pa.list_(pa.float64()), [0.0], [-0.0], True),
        (pa.list_(pa.float32(), 2), [1.0, 0.0], [1.0, -0.0], True),
        (pa.list_(pa.float32(), 2), [1.0, NAN], [1.0, NAN], False),
        (pa.list_(pa.float32(), 2), None, [0.0, 0.0], True),
    ],
)
def test_values_are_equal_by_the_rule_of_their_kind(
    kind: pa.DataType, left: object, right: object, differs: bool
) -> None:
    # Values around the compared one, and a slice, so that offsets are not zero.
    def column(value: object) -> pa.Array:
        return pa.array([value, None, value, value], kind).slice(1)

    both_ways = (
        differing_values(column(left), column(right)),
        differing_values(column(right), column(left)),
    )
    for found in both_ways:
        assert found.tolist() == [False, differs, differs]
        assert found.dtype == np.bool_
