"""Rules against stored rows, for every type that a rule can stand on."""

from __future__ import annotations

import json
import pickle

import pyarrow as pa
import pytest

from omnigraph.graph import Graph
from omnigraph.write.rules.stored_checks import StoredRowsError
from omnigraph.write.rules.validate import validate
from omnigraph.write.rules.violations import KeyConflictError, ValidationError
from omnigraph.write.stage import stored_rows as locate
from omnigraph.write.stage.delta import GraphDelta, TableDelta
from support.places import Place

NOBODY = pa.array([], pa.utf8())

EQUAL: dict[str, tuple[object, object]] = {
    "String": ("it's", "it's"),
    "Bool": (True, True),
    "I32": (-5, -5),
    "I64": (-(2**63), -(2**63)),
    "U32": (2**32 - 1, 2**32 - 1),
    "U64": (2**64 - 1, 2**64 - 1),
    "F32": (0.1, 0.10000000001),
    "F64": (0.0, -0.0),
    "Date": ("2024-02-29", 19782),
    "DateTime": ("2024-02-29T12:00:00.5Z", 1709208000500),
    "enum(a, b)": ("a", "a"),
}


def lines(*records: object) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def item(identity: str, **data: object) -> dict[str, object]:
    return {"type": "Item", "data": {"id": identity, **data}}


@pytest.mark.parametrize("probes", [0, 64])
@pytest.mark.parametrize("kind", EQUAL)
def test_a_stored_value_of_every_type_is_found_by_unique(
    local_place: Place, kind: str, probes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locate, "_PROBES_ALWAYS", probes)
    graph = local_place.init(f"node Item {{ p: {kind}? @unique }}")
    stored, given = EQUAL[kind]
    graph.load(lines(item("a", p=stored), item("n")), mode="append")
    with pytest.raises(ValidationError, match=r"@unique violation on Item\.p: .* 'a' and 'b'"):
        graph.load(lines(item("b", p=given)), mode="append")
    graph.load(lines(item("c"), item("a", p=given)), mode="merge")


@pytest.mark.parametrize("kind", EQUAL)
def test_a_new_unique_finds_stored_values_of_every_type(local_place: Place, kind: str) -> None:
    graph = local_place.init(f"node Item {{ p: {kind}? }}")
    first, second = EQUAL[kind]
    graph.load(lines(item("a", p=first), item("b", p=second), item("n")), mode="append")
    with pytest.raises(StoredRowsError, match=r"@unique violation on Item\.p: .* 'a' and 'b'"):
        graph.apply_schema(f"node Item {{ p: {kind}? @unique }}")


@pytest.mark.parametrize("probes", [0, 64])
def test_composite_tuples_compare_member_by_member(
    local_place: Place, probes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locate, "_PROBES_ALWAYS", probes)
    graph = local_place.init("node Item { a: String?  b: String?  @unique(a, b) }")
    graph.load(lines(item("1", a="x,", b="y"), item("2", a="x", b=None)), mode="append")
    graph.load(lines(item("3", a="x", b=",y"), item("4", a="x")), mode="append")
    with pytest.raises(ValidationError, match=r"Item\.\(a, b\): value '\(x,, y\)' held by '1'"):
        graph.load(lines(item("5", a="x,", b="y")), mode="append")


@pytest.fixture
def graph(local_place: Place) -> Graph:
    graph = local_place.init(
        "node P { name: String @key }\nnode Q { name: String @key }\n"
        "edge E: P -> Q @card(1..2)\nedge F: Q -> Q"
    )
    records = [{"type": kind, "data": {"name": name}} for kind in "PQ" for name in "abc"]
    edge = {"edge": "E", "from": "a", "to": "a", "data": {"id": "e1"}}
    graph.load(lines(*records, edge), mode="append")
    return graph


def change(graph: Graph, key: str, *, rows: list[dict[str, str]], deleted: list[str]) -> TableDelta:
    schema = graph.snapshot().open(key).schema
    return TableDelta(key, pa.Table.from_pylist(rows, schema), pa.array(deleted, pa.utf8()))


def reads_of(graph: Graph, *tables: TableDelta) -> dict[str, object]:
    snapshot = graph.snapshot()
    delta = GraphDelta({table.table_key: table for table in tables})
    return dict(validate(delta, snapshot, snapshot.catalog).reads)


def test_an_edge_rests_on_its_nodes_only_where_they_are_not_written(graph: Graph) -> None:
    edge = change(graph, "edge:E", rows=[{"id": "e2", "src": "b", "dst": "b"}], deleted=[])
    assert set(reads_of(graph, edge)) == {"node:P", "node:Q"}
    node = change(graph, "node:P", rows=[{"id": "b", "name": "b"}], deleted=[])
    assert set(reads_of(graph, edge, node)) == {"node:Q"}


def test_a_deleted_node_rests_on_the_edges_that_could_end_in_it(graph: Graph) -> None:
    gone = change(graph, "node:Q", rows=[], deleted=["c"])
    assert set(reads_of(graph, gone)) == {"edge:E", "edge:F"}


def test_an_edge_to_a_node_that_the_same_change_deletes_is_refused(graph: Graph) -> None:
    gone = change(graph, "node:Q", rows=[], deleted=["c"])
    edge = change(graph, "edge:E", rows=[{"id": "e2", "src": "b", "dst": "c"}], deleted=[])
    with pytest.raises(ValidationError, match="dst 'c' not found in Q"):
        reads_of(graph, gone, edge)


def test_the_last_edge_of_a_source_stays_unless_the_source_goes_too(graph: Graph) -> None:
    edge = change(graph, "edge:E", rows=[], deleted=["e1"])
    with pytest.raises(ValidationError, match=r"source 'a' has 0 edges \(min 1\)"):
        reads_of(graph, edge)
    reads_of(graph, edge, change(graph, "node:P", rows=[], deleted=["a"]))


def test_violations_of_single_rows_name_their_table(local_place: Place) -> None:
    graph = local_place.init(
        "node X { name: String @key  n: I32? @range(n, 0..9) }\nedge X: X -> X"
    )
    edge = {"edge": "X", "from": 7, "to": "a"}
    node = {"type": "X", "data": {"name": "a", "n": 10}}
    wrong_type = {"type": "X", "data": {"name": "b", "n": "?"}}
    with pytest.raises(ValidationError) as caught:
        graph.load(lines(edge, node, wrong_type), mode="append")
    tables = [(found.rule, found.table_key) for found in caught.value.violations]
    assert tables == [("endpoint", "edge:X"), ("range", "node:X"), ("type", "node:X")]


def test_errors_survive_pickling(graph: Graph) -> None:
    for text in (b"x\n{}\n", lines({"type": "P", "data": {"name": "a"}})):
        with pytest.raises((ValidationError, KeyConflictError)) as caught:
            graph.load(text, mode="append")
        again = pickle.loads(pickle.dumps(caught.value))
        assert str(again) == str(caught.value)
        assert vars(again) == vars(caught.value)
