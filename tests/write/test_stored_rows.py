"""Finding stored rows: every way finds the same ones, and reads no more than it must."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from omnigraph.graph import Graph
from omnigraph.store.lance.handle import LanceHandle
from omnigraph.store.records import ROW_ID, IndexKind, IndexSpec, ScanRequest
from omnigraph.write.stage import stored_rows as locate
from omnigraph.write.stage.stored_rows import StoredRows, probe
from support.places import Place, repository_of
from support.scans import explain, scan_statistics

SCHEMA = "node Person { name: String @key  age: I32?  day: DateTime? }"


@pytest.fixture
def graph(local_place: Place) -> Graph:
    graph = local_place.init(SCHEMA)
    for first in (0, 100, 200):
        people = pa.table({"name": [f"p{n}" for n in range(first, first + 100)]})
        ages = pa.array(range(first, first + 100), pa.int32())
        table = people.append_column("age", ages).append_column("day", ages.cast(pa.int64()))
        graph.load_tables(nodes={"Person": table}, mode="append")
    return graph


@pytest.mark.parametrize("probes", [0, 10_000])
def test_a_probe_and_a_pass_find_the_same_rows(
    graph: Graph, probes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locate, "_PROBES_ALWAYS", probes)
    stored = StoredRows(graph.snapshot())
    ids = pa.chunked_array([["p250", "ghost"], ["p3", "p0"]])
    assert stored.contains("node:Person", ids).tolist() == [True, False, True, True]
    located = stored.locate("node:Person", ids)
    assert located.found.tolist() == [True, False, True, True]
    rows = graph.snapshot().open("node:Person").take(located.row_ids[located.found].tolist())
    assert rows["id"].to_pylist() == ["p250", "p3", "p0"]
    addressed = (
        graph.snapshot()
        .open("node:Person")
        .take_addresses(located.addresses[located.found].tolist(), ["id"])
    )
    assert addressed["id"].to_pylist() == ["p250", "p3", "p0"]


def test_what_was_found_is_still_there_when_more_is_looked_for(graph: Graph) -> None:
    stored = StoredRows(graph.snapshot())
    for names in (["p0", "p1"], ["p1", "p2", "ghost"], ["ghost", "p0", "p1", "p2"]):
        found = stored.contains("node:Person", pa.array(names)).tolist()
        assert found == [name != "ghost" for name in names]


@pytest.mark.parametrize("probes", [0, 10_000])
@pytest.mark.parametrize("column", ["age", "day"])
def test_rows_are_found_by_any_column(
    graph: Graph, probes: int, column: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locate, "_PROBES_ALWAYS", probes)
    snapshot = graph.snapshot()
    kind = snapshot.open("node:Person").schema.field(column).type
    values = pa.array([7, None, 299, 7, 1_000], pa.int32() if column == "age" else pa.int64())
    found = StoredRows(snapshot).where("node:Person", column, values.cast(kind), columns=("id",))
    assert sorted(found["id"].to_pylist()) == ["p299", "p7"]
    assert found.column_names == ["id"]


def test_an_empty_table_is_not_opened(local_place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = local_place.init(SCHEMA).snapshot()
    monkeypatch.setattr(type(snapshot), "open", lambda *_: pytest.fail("opened"))
    stored = StoredRows(snapshot)
    assert stored.contains("node:Person", pa.array(["a"])).tolist() == [False]
    assert stored.locate("node:Person", pa.array(["a"])).count == 0
    assert list(stored.scan("node:Person", ("id",))) == []


def test_a_few_ids_of_many_are_a_filter_and_many_of_few_a_pass(graph: Graph) -> None:
    stored = StoredRows(graph.snapshot())
    assert stored._few(64, "node:Person")
    assert not stored._few(65, "node:Person")
    assert not stored._few(10_000_000, "node:Person")


def test_row_ids_stay_when_rows_are_replaced(graph: Graph) -> None:
    before = _row_ids(graph)
    graph.load_tables(nodes={"Person": pa.table({"name": ["p7", "new", "p299"]})}, mode="merge")
    after = _row_ids(graph)
    assert {name: after[name] for name in before} == before
    assert after["new"] not in before.values()
    assert graph.snapshot().entry("node:Person").row_count == 301


def _row_ids(graph: Graph) -> dict[str, int]:
    request = ScanRequest(columns=("id",), with_row_id=True)
    rows = graph.snapshot().open("node:Person").scan(request).read_all()
    return dict(zip(rows["id"].to_pylist(), rows[ROW_ID].to_pylist(), strict=True))


@pytest.mark.parametrize("column", ["id", "age", "day"])
def test_a_probe_is_answered_by_an_index_that_covers_its_column(graph: Graph, column: str) -> None:
    datasets = repository_of(graph).store.datasets
    at = graph.snapshot().open("node:Person").at
    landed = datasets.commit_staged(
        datasets.stage_create_index(at, [IndexSpec(column, IndexKind.BTREE)])
    )
    handle = datasets.open(landed.location, version=landed.version)
    kind = handle.schema.field(column).type
    values = pa.array(["p3"]) if column == "id" else pa.array([3], pa.int32()).cast(pa.int64())
    request = probe(column, values.cast(kind), columns=("id",), with_rows=True)
    assert "ScalarIndexQuery" in explain(handle, request)
    found, cost = scan_statistics(handle, request)
    assert found["id"].to_pylist() == ["p3"]
    assert cost.indexes_loaded == 1


def test_positions_are_numbers_of_numpy(graph: Graph) -> None:
    located = StoredRows(graph.snapshot()).locate("node:Person", pa.array(["p1"]))
    assert located.row_ids.dtype == np.uint64


def test_ids_that_were_announced_are_found_by_one_probe(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []
    find = LanceHandle.find

    def counting(self: LanceHandle, column: str, values: list[str]) -> pa.Table:
        asked.append(sorted(values))
        return find(self, column, values)

    monkeypatch.setattr(LanceHandle, "find", counting)
    stored = StoredRows(graph.snapshot())
    stored.expect("node:Person", pa.array(["p7", "new"]))
    stored.expect("node:Person", pa.array(["p9"]))
    assert stored.contains("node:Person", pa.array(["p9"])).tolist() == [True]
    assert stored.locate("node:Person", pa.array(["new", "p7"])).found.tolist() == [False, True]
    assert asked == [["new", "p7", "p9"]]
