"""Schema changes of a whole graph: what is written, and what is found afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from omnigraph.graph import Graph
from omnigraph.search.table_state import TableState
from support.places import Place

SCHEMA = """
node Person { name: String @key   age: I32?   city: String? @index }
edge Knows: Person -> Person { since: I32? }
"""
LINES = b"""
{"type": "Person", "data": {"name": "ann", "age": 41, "city": "Rome"}}
{"type": "Person", "data": {"name": "bo", "age": 7, "city": "Oslo"}}
{"edge": "Knows", "from": "ann", "to": "bo", "data": {"since": 3}}
"""
LIGHT = """
node Person {
    name: String @key
    years: I32? @rename_from("age")
    city: String? @index
    nick: String?
}
edge Knows: Person -> Person { }
"""
FILLED = """
node Person {
    name: String @key
    years: I64?
    city: String? @index
    nick: String?
    rank: I32 @default(2)
}
edge Knows: Person -> Person { weight: F64 @default(0.5) }
"""
FRIENDS = (
    'query q() { match { $a: Person { name: "ann" } $a knows $b } return { $b.name, $b.years } }'
)


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with Place(str(tmp_path / "graph")).init(SCHEMA) as graph:
        graph.load(LINES, mode="append")
        graph.ensure_indices()
        yield graph


def data_files(graph: Graph) -> dict[str, int]:
    root = Path(graph.uri)
    files = [*root.glob("nodes/**/data/**/*"), *root.glob("edges/**/data/**/*")]
    return {str(file): file.stat().st_size for file in files if file.is_file()}


def states(graph: Graph) -> dict[str, str]:
    snapshot = graph.snapshot()
    return {key: TableState.of(snapshot.open(key)).key for key in ("node:Person", "edge:Knows")}


def covered(graph: Graph) -> dict[tuple[str, ...], int]:
    indexes = graph.snapshot().open("node:Person").indexes()
    return {index.columns: index.rows_covered for index in indexes}


def test_names_drops_and_null_properties_write_no_byte_of_data(graph: Graph) -> None:
    files, known, indexed = data_files(graph), states(graph), covered(graph)
    assert graph.query(FRIENDS.replace("years", "age")).to_pylist() == [
        {"b.name": "bo", "b.age": 7}
    ]
    graph.schema.apply(LIGHT)
    assert data_files(graph) == files
    assert states(graph) == known, "topology is found under the state"
    assert covered(graph) == indexed
    assert graph.query(FRIENDS).to_pylist() == [{"b.name": "bo", "b.years": 7}]


def test_filled_and_widened_properties_write_only_their_files(graph: Graph) -> None:
    graph.schema.apply(LIGHT)
    files, known, indexed = data_files(graph), states(graph), covered(graph)
    assert graph.query(FRIENDS).to_pylist() == [{"b.name": "bo", "b.years": 7}]
    graph.schema.apply(FILLED)
    assert {name: size for name, size in data_files(graph).items() if name in files} == files
    assert len(data_files(graph)) == len(files) + 2
    assert states(graph) == known
    assert covered(graph) == indexed
    assert graph.query(FRIENDS).to_pylist() == [{"b.name": "bo", "b.years": 7}]
    ranked = "query q() { match { $p: Person { rank: 2 } } return { count($p) as n } }"
    assert graph.query(ranked).to_pylist() == [{"n": 2}]
    report = graph.scrub()
    assert (report.damaged, report.without_checksum) == ((), ())


def test_a_hard_drop_leaves_the_values_in_no_file(graph: Graph) -> None:
    files = data_files(graph)
    graph.schema.apply(SCHEMA.replace("age: I32?   ", ""), allow_data_loss=True)
    assert not any("nodes" in name and name in files for name in data_files(graph))
