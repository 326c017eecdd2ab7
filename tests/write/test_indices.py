"""Which indexes a type gets, when they are built, and how they follow the rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from omnigraph.graph import Graph
from omnigraph.maintenance import build_indexes as indices
from omnigraph.maintenance.build_indexes import (
    NOTHING_TO_TRAIN_ON,
    VECTOR_ROWS_MIN,
    declared_indexes,
    plan_indexes,
)
from omnigraph.schema import compile_schema
from omnigraph.store.filters import Comparison
from omnigraph.store.records import IndexKind, IndexSpec, ScanRequest, TextSearch, VectorSearch
from support.places import PERSON, Place, add, repository_of
from support.scans import coverage_of, scan_statistics

SCHEMA = """\
node Item {
    code: String @key
    kind: enum(a, b) @index
    number: I64 @index
    flag: Bool? @index
    day: Date? @index
    moment: DateTime? @index
    text: String? @index @substring
    plain: String?
    one: I32? @unique
    x: I32?
    y: String?
    words: [String]?
    vec: Vector(2)? @index @metric("l2")
    @index(x, y)
}
edge Has: Item -> Item {
    rank: I32?
    label: String?
    @index(label)
    @unique(src, rank)
}
"""


def wanted(kind: str, name: str) -> set[tuple[str, str]]:
    catalog = compile_schema(SCHEMA, domain="01J" + "0" * 23).catalog
    declared = catalog.node_types[name] if kind == "node" else catalog.edge_types[name]
    return {(spec.column, spec.kind.value) for spec in declared_indexes(declared)}


def test_a_node_type_gets_the_indexes_of_its_declaration() -> None:
    btree = {"id", "code", "kind", "number", "flag", "day", "moment", "text", "one", "x", "y"}
    assert wanted("node", "Item") == {(name, "BTREE") for name in btree} | {
        ("code", "INVERTED"),
        ("text", "INVERTED"),
        ("text", "NGRAM"),
        ("vec", "IVF_HNSW_SQ"),
    }


def test_an_edge_type_gets_btrees_on_ends_and_members() -> None:
    names = ("id", "src", "dst", "label", "rank")
    assert wanted("edge", "Has") == {(name, "BTREE") for name in names}


def load(graph: Graph, count: int, start: int = 0, **columns: pa.Array) -> None:
    numbers = range(start, start + count)
    rows = {
        "code": [f"c{n:06}" for n in numbers],
        "kind": ["a"] * count,
        "number": list(numbers),
        "text": [f"word{n} common" for n in numbers],
        **columns,
    }
    graph.load_tables(nodes={"Item": pa.table(rows)}, mode="append")


def test_ensure_indices_builds_once_and_every_index_answers(place: Place) -> None:
    graph = place.init(SCHEMA)
    load(graph, 40)
    report = graph.ensure_indices()
    assert report.commit is not None
    assert report.commit.operation == "ensure_indices"
    assert [(p.table_key, p.property, p.reason) for p in report.pending] == [
        ("node:Item", "vec", NOTHING_TO_TRAIN_ON)
    ]
    handle = graph.snapshot().open("node:Item")
    built = {(index.columns[0], index.kind) for index in handle.indexes()}
    assert built == wanted("node", "Item") - {("vec", "IVF_HNSW_SQ")}
    assert coverage_of(handle, "number") is None
    rows, cost = scan_statistics(
        handle, ScanRequest(columns=("id",), row_filter=Comparison("code", "=", "c000007"))
    )
    assert rows.num_rows == 1
    assert cost.indexes_loaded >= 1
    found = handle.scan(ScanRequest(columns=("id",), text=TextSearch("text", "word7"))).read_all()
    assert found.num_rows == 1
    again = graph.ensure_indices()
    assert again.commit is None
    assert len(again.pending) == 1


def test_empty_tables_and_tables_without_vectors_are_no_work(place: Place) -> None:
    graph = place.init(SCHEMA)
    report = graph.ensure_indices()
    assert (report.commit, report.pending) == (None, ())


def test_uncovered_fragments_are_reported_and_folded_in(place: Place) -> None:
    graph = place.init(SCHEMA)
    load(graph, 20)
    graph.ensure_indices()
    for start in (20, 30):
        load(graph, 10, start)
    handle = graph.snapshot().open("node:Item")
    assert coverage_of(handle, "number") == "2 fragment(s) not covered by the index on 'number'"
    assert coverage_of(handle, "plain") == "no BTREE index on 'plain'"
    assert coverage_of(handle, "nope") == "column 'nope' not in schema"
    assert graph.ensure_indices().commit is not None
    handle = graph.snapshot().open("node:Item")
    assert coverage_of(handle, "number") is None
    for index in handle.indexes():
        assert index.rows_covered == 40
        assert len(index.segments) == 1, "small segments are built again together"


def test_a_small_tail_becomes_a_segment_of_its_own(place: Place) -> None:
    graph = place.init(SCHEMA)
    load(graph, 200)
    graph.ensure_indices()
    load(graph, 5, 200)
    graph.ensure_indices()
    handle = graph.snapshot().open("node:Item")
    by_id = next(i for i in handle.indexes() if i.columns == ("id",))
    assert (by_id.rows_covered, len(by_id.segments)) == (205, 2)


def test_an_index_that_is_no_longer_declared_goes(place: Place) -> None:
    graph = place.init(SCHEMA)
    load(graph, 20)
    graph.ensure_indices()
    graph.apply_schema(SCHEMA.replace("number: I64 @index", "number: I64"))
    assert graph.ensure_indices().commit is not None
    columns = {index.columns[0] for index in graph.snapshot().open("node:Item").indexes()}
    assert "number" not in columns
    assert "code" in columns


def test_large_vector_columns_get_an_index_with_the_declared_metric(place: Place) -> None:
    graph = place.init(SCHEMA)
    count = VECTOR_ROWS_MIN
    angles = np.linspace(0, 1.5, count, dtype=np.float32)
    flat = np.column_stack([np.cos(angles), np.sin(angles)]).ravel()
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(flat, pa.float32()), 2)
    load(graph, count - 1, vec=vectors[: count - 1])
    graph.ensure_indices()
    assert _vector_indexes(graph) == []
    load(graph, 1, count - 1, vec=vectors[count - 1 :])
    graph.ensure_indices()
    assert _vector_indexes(graph) == ["IVF_HNSW_SQ"]
    search = VectorSearch("vec", (1.0, 0.0), k=1)
    handle = graph.snapshot().open("node:Item")
    nearest = handle.scan(ScanRequest(columns=("id",), nearest=search)).read_all()
    assert nearest["id"].to_pylist() == ["c000000"]
    catalog = graph.catalog().node_types["Item"]
    assert plan_indexes(handle, catalog).is_empty


def test_a_vector_index_is_trained_again_when_rows_have_grown_fourfold(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = 400
    monkeypatch.setattr(indices, "VECTOR_ROWS_MIN", rows)
    graph = place.init(SCHEMA)
    flat = np.random.default_rng(2).normal(size=rows * 8).astype(np.float32)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(flat), 2)
    segments: list[set[str]] = []
    for first, last in ((0, rows), (rows, 2 * rows), (2 * rows, 4 * rows)):
        load(graph, last - first, first, vec=vectors[first:last])
        graph.ensure_indices()
        handle = graph.snapshot().open("node:Item")
        [index] = [one for one in handle.indexes() if one.columns == ("vec",)]
        assert index.rows_covered == last
        segments.append({segment.uuid for segment in index.segments})
    trained, extended, again = segments
    assert trained < extended, "less than fourfold: what is there stays"
    assert len(again) == 1
    assert not again & extended


def _vector_indexes(graph: Graph) -> list[str]:
    handle = graph.snapshot().open("node:Item")
    return [index.kind for index in handle.indexes() if index.columns == ("vec",)]


def test_a_branch_indexes_only_what_it_owns(place: Place) -> None:
    graph = place.init()
    add(graph, "ann")
    graph.branch_create("dev")
    assert graph.ensure_indices("dev").commit is None
    add(graph, "bob", branch="dev")
    report = graph.ensure_indices("dev")
    assert report.commit is not None
    assert report.commit.graph_branch == "dev"
    dev = place.open("dev").snapshot()
    assert coverage_of(dev.open(PERSON), "id") is None
    assert coverage_of(graph.snapshot().open(PERSON), "id") == "no BTREE index on 'id'"


def test_an_index_of_another_name_is_not_built_again(place: Place) -> None:
    graph = place.init()
    add(graph, "ann")
    repository = repository_of(graph)
    datasets = repository.store.datasets
    entry = graph.snapshot().entries[PERSON]
    spec = IndexSpec("id", IndexKind.BTREE, "other_name")
    at = datasets.open(entry.location).at
    landed = datasets.commit_staged(datasets.stage_create_index(at, [spec]))
    graph.repair(confirm=True, force=True)
    graph.ensure_indices()
    handle = graph.snapshot().open(PERSON)
    assert landed.version < handle.at.version
    assert {(i.name, i.columns[0], i.kind) for i in handle.indexes()} == {
        ("other_name", "id", "BTREE"),
        ("name_idx", "name", "BTREE"),
        ("name_text_idx", "name", "INVERTED"),
    }
