"""Omnigraph: the package under test."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.peers.dataset import Data
from bench.peers.engine import Engine, Work, averages, counted, keyed, once, people, scores
from bench.peers.recall import recall

NAME = "omnigraph"
NEEDS = ("omnigraph.graph", "lance")
SCHEMA = """
node Person {{
    pid: String @key
    name: String
    age: I32
    city: String @index
    bio: String @index
    {vector}
}}
node Company {{ cid: String @key  industry: String }}
edge Knows: Person -> Person {{ since: I32 }}
edge WorksAt: Person -> Company {{ since: I32 }}
"""
QUERIES = """
query point($k: String) {
    match { $a: Person { pid: $k } }
    return { $a, $a.name, $a.age, $a.city }
}
query two_hop($k: String) {
    match { $a: Person { pid: $k }  $a knows $b  $b knows $c }
    return distinct { $c }
}
query three_hop($k: String) {
    match { $a: Person { pid: $k }  $a knows $b  $b knows $c  $c knows $d }
    return { count(distinct $d) as n }
}
query reach($k: String) {
    match { $a: Person { pid: $k }  $a knows{1,4} $b }
    return { count($b) as n }
}
query friend_age() {
    match { $a: Person  $a knows $b }
    return { $a.city, avg($b.age) as age }
}
query top20() {
    match { $a: Person  $a knows $b }
    return { $a, count($b) as n } order { n desc } limit 20
}
query nobody() { match { $a: Person  not { $a knows $_ } } return { count($a) as n } }
query city_age() { match { $a: Person } return { $a.city, avg($a.age) as age } }
query bm25($q: String) {
    match { $a: Person } return { $a, bm25($a.bio, $q) as score }
    order { score } limit 10
}
"""
VECTOR_QUERIES = """
query vector($v: Vector(64), $c: String) {
    match { $a: Person { city: $c } } return { $a } order { nearest($a.embedding, $v) } limit 10
}
"""
PLACES = "places.json"
BYTES_PER_STEP = "bytes of topology per edge and direction"
RECALL = "recall@10 of the vector search"


def build(data: Data, root: Path) -> None:
    from omnigraph.graph import Graph

    vector = "embedding: Vector(64) @index" if data.has_vectors else ""
    with Graph.init(root / "graph", SCHEMA.format(vector=vector), durability="process") as graph:
        person, company = data.read("person"), data.read("company")
        graph.load_tables(
            nodes={
                "Person": _renamed(person, "id", "pid"),
                "Company": _renamed(company, "id", "cid"),
            },
            edges={"Knows": data.read("knows"), "WorksAt": data.read("works_at")},
            mode="append",
        )
        graph.ensure_indices()
        graph.query(QUERIES, "nobody")
        snapshot = graph.snapshot()
        places = {
            key: {"uri": str(root / "graph" / entry.location), "version": entry.table_version}
            for key, entry in snapshot.entries.items()
        }
    (root / PLACES).write_text(json.dumps(places))


def _renamed(table: Any, old: str, new: str) -> Any:
    return table.rename_columns([new if name == old else name for name in table.column_names])


def opened(data: Data, root: Path) -> Engine:
    from omnigraph.graph import Graph, OpenMode

    graph = Graph.open(root / "graph", mode=OpenMode.READ_ONLY, durability="process")
    text = QUERIES + (VECTOR_QUERIES if data.has_vectors else "")

    def run(name: str, **params: object) -> Any:
        return graph.query(text, name, params)

    def by_key(name: str, check: Callable[[Any], int]) -> Work:
        return keyed(data, lambda key: run(name, k=key), check)

    works = {
        "point": by_key("point", _people),
        "two_hop": by_key("two_hop", _people),
        "three_hop": by_key("three_hop", _number),
        "reach": by_key("reach", _number),
        "friend_age": once(lambda: run("friend_age"), lambda found: averages(_rows(found))),
        "top20": once(lambda: run("top20"), lambda found: counted(_rows(found))),
        "nobody": once(lambda: run("nobody"), _number),
        "city_age": once(lambda: run("city_age"), lambda found: averages(_rows(found))),
        "bm25": Work(
            lambda i: run("bm25", q=data.texts[i]),
            lambda found: scores(found.arrays[1].to_pylist()),
            len(data.texts),
        ),
    }
    if data.has_vectors:
        works["vector"] = Work(
            lambda i: run("vector", v=list(data.vectors[i]), c=data.cities[i]),
            _people,
            len(data.vectors),
        )

    def facts() -> dict[str, float]:
        # Only the edges that the works walk over are in memory.
        edges = graph.snapshot().entry("edge:Knows").row_count
        found = {BYTES_PER_STEP: graph._session.topologies.nbytes / edges / 2}
        if data.has_vectors:
            search = works["vector"].ask
            found[RECALL] = recall(data, lambda i: search(i).arrays[0].to_pylist())
        return found

    return Engine(works, facts)


def _rows(found: Any) -> list[tuple[Any, ...]]:
    return list(zip(*(array.to_pylist() for array in found.arrays), strict=True))


def _people(found: Any) -> int:
    return people(found.arrays[0].to_pylist())


def _number(found: Any) -> int:
    return int(found.arrays[0][0].as_py())
