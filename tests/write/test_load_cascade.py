"""An overwrite of nodes with `cascade` takes the edges along that would have no end."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from omnigraph.failpoints import arm, disarm
from omnigraph.graph import Graph
from omnigraph.manifest.errors import ExpectedVersionMismatchError
from omnigraph.write.load.options import LoadOptionsError
from omnigraph.write.rules.violations import ValidationError
from support.loads import graph_lines
from support.places import Place

SCHEMA = """
node Person { name: String @key }
node City { name: String @key }
edge Knows: Person -> Person
edge LivesIn: Person -> City @card(1..)
edge Twin: City -> City
"""


def lines(*records: object) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def node(kind: str, name: str) -> dict[str, object]:
    return {"type": kind, "data": {"name": name}}


def edge(kind: str, source: str, target: str) -> dict[str, object]:
    return {"edge": kind, "from": source, "to": target, "data": {"id": f"{source}-{target}"}}


@pytest.fixture
def graph(local_place: Place) -> Graph:
    graph = local_place.init(SCHEMA)
    people = [node("Person", name) for name in "abc"]
    cities = [node("City", name) for name in ("x", "y")]
    edges = [edge("Knows", "a", "b"), edge("Knows", "b", "c"), edge("Knows", "c", "c")]
    edges += [edge("LivesIn", "a", "x"), edge("LivesIn", "c", "x"), edge("LivesIn", "c", "y")]
    graph.load(lines(*people, *cities, *edges, edge("Twin", "x", "y")), mode="append")
    return graph


def edges_of(graph: Graph) -> list[str]:
    return sorted(line.split()[1] for line in graph_lines(graph) if "->" in line)


@pytest.mark.parametrize("as_table", [False, True])
def test_edges_of_nodes_that_go_are_removed_in_the_same_commit(
    graph: Graph, as_table: bool
) -> None:
    if as_table:
        kept = pa.table({"name": ["b", "c"]})
        result = graph.load_tables(nodes={"Person": kept}, mode="overwrite", cascade=True)
    else:
        kept_lines = lines(node("Person", "b"), node("Person", "c"))
        result = graph.load(kept_lines, mode="overwrite", cascade=True)
    assert edges_of(graph) == ["b-c", "c-c", "c-x", "c-y", "x-y"]
    assert result.cascaded == {"Knows": 1, "LivesIn": 1}
    assert result.to_json()["cascaded"] == [
        {"name": "Knows", "removed": 1},
        {"name": "LivesIn", "removed": 1},
    ]
    assert [name for name, _ in result.edges] == [], "no record of an edge was read"
    assert result.commit is not None
    assert graph.snapshot().manifest_version == result.commit.manifest_version


def test_without_it_the_overwrite_is_refused(graph: Graph) -> None:
    before = graph_lines(graph)
    with pytest.raises(ValidationError) as refused:
        graph.load(lines(node("Person", "b"), node("Person", "c")), mode="overwrite")
    assert refused.value.totals == {"endpoint": 2}
    assert graph_lines(graph) == before


def test_all_edges_of_a_type_may_go(graph: Graph) -> None:
    graph.load(lines(node("Person", "z")), mode="overwrite", cascade=True)
    assert edges_of(graph) == ["x-y"]
    graph.load(lines(edge("Knows", "z", "z")), mode="append")
    assert edges_of(graph) == ["x-y", "z-z"]


def test_a_node_that_stays_keeps_the_edges_that_it_must_have(graph: Graph) -> None:
    before = graph_lines(graph)
    with pytest.raises(ValidationError) as refused:
        graph.load(lines(node("City", "y")), mode="overwrite", cascade=True)
    (violation,) = refused.value.violations
    assert violation.message == "@card violation on edge LivesIn: source 'a' has 0 edges (min 1)"
    assert graph_lines(graph) == before
    both = lines(node("City", "y"), node("Person", "c"))
    graph.load(both, mode="overwrite", cascade=True)
    assert edges_of(graph) == ["c-c", "c-y"]


def test_a_cascade_that_takes_nothing_leaves_the_edges_alone(graph: Graph) -> None:
    before = graph.snapshot().entry("edge:Knows")
    people = [node("Person", name) for name in "abcd"]
    result = graph.load(lines(*people), mode="overwrite", cascade=True)
    assert result.cascaded == {}
    assert graph.snapshot().entry("edge:Knows") == before


@pytest.mark.usefixtures("disarmed")
def test_an_edge_that_comes_in_between_is_a_conflict_and_not_left_dangling(graph: Graph) -> None:
    graph.load(lines(node("Person", "lone")), mode="append")
    before = edges_of(graph)

    def rival() -> None:
        disarm()
        graph.load(lines(edge("Knows", "lone", "a")), mode="append")

    arm("write.post_stage", rival)
    people = [node("Person", name) for name in "abc"]
    with pytest.raises(ExpectedVersionMismatchError):
        graph.load(lines(*people), mode="overwrite", cascade=True)
    assert edges_of(graph) == sorted([*before, "lone-a"])
    graph.load(lines(*people), mode="overwrite", cascade=True)
    assert edges_of(graph) == before


@pytest.mark.parametrize("mode", ["append", "merge"])
def test_other_modes_have_no_cascade(graph: Graph, mode: str) -> None:
    with pytest.raises(LoadOptionsError, match="overwrite"):
        graph.load(lines(node("City", "z")), mode=mode, cascade=True)
