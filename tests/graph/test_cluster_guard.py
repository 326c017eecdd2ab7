"""A graph of a cluster is made and migrated by the cluster alone, also from Python."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph.graph import Graph, apply_schema_by_cluster
from omnigraph.graph.cluster_guard import LEDGER, InsideClusterError

SCHEMA = "node Person { name: String @key }\n"
NEXT = "node Person { name: String @key  age: I32? }\n"


@pytest.fixture
def graph_uri(tmp_path: Path) -> str:
    """The root of a graph in a storage root that has a ledger."""
    uri = str(tmp_path / "graphs" / "people.omni")
    Graph.init(uri, SCHEMA, by_cluster=True).close()
    ledger = tmp_path / LEDGER
    ledger.parent.mkdir()
    ledger.write_text("{}")
    return uri


def test_the_schema_of_a_graph_in_a_cluster_is_not_applied_directly(graph_uri: str) -> None:
    with Graph.open(graph_uri) as graph:
        for refused in (graph.schema.apply, graph.apply_schema):
            with pytest.raises(InsideClusterError, match="schema apply is refused") as told:
                refused(NEXT)
            assert "omnigraph cluster apply" in str(told.value.hint)
        assert graph.schema.source() == SCHEMA
        apply_schema_by_cluster(graph.schema, NEXT)
        assert graph.schema.source() == NEXT


def test_a_graph_is_not_made_among_those_of_a_cluster(graph_uri: str) -> None:
    other = graph_uri.replace("people", "pets")
    with pytest.raises(InsideClusterError, match="init is refused"):
        Graph.init(other, SCHEMA)
    assert not Path(other).exists()


def test_graphs_at_other_places_are_free(graph_uri: str, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    for place in ("graphs/people", "people.omni", "elsewhere/graphs/people.omni"):
        with Graph.init(str(tmp_path / place), SCHEMA) as graph:
            assert graph.schema.apply(NEXT).applied
