"""A handle that is held to one schema, while the schema of its graph moves on."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import pytest

from omnigraph.errors import ConflictError
from omnigraph.graph import Graph, ReadTarget, accepted_schema

OLD = "node Person { name: String @key  age: I32? }"
NEW = "node Person { name: String @key }"
AGES = "query ages() { match { $p: Person } return { $p.name, $p.age } }"
NAMES = "query names() { match { $p: Person } return { $p.name } }"
ADD = "query add($name: String) { insert Person { name: $name } }"


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    graph = Graph.init(tmp_path / "people.omni", OLD, durability="process")
    graph.load(b'{"type": "Person", "data": {"name": "Ada", "age": 36}}', mode="append")
    return graph


def held(graph: Graph) -> Graph:
    return graph.with_schema(accepted_schema(graph.schema).schema_hash)


def test_it_reads_the_last_snapshot_of_its_schema(graph: Graph) -> None:
    old = held(graph)
    graph.mutate(ADD, params={"name": "Ben"})
    last = graph.snapshot().commit_id
    graph.apply_schema(NEW)
    graph.mutate(ADD, params={"name": "Cy"})
    graph.mutate(ADD, params={"name": "Di"})
    found = old.query(AGES)
    assert [row["p.name"] for row in found.json_rows()] == ["Ada", "Ben"]
    assert found.graph_commit_id == last
    assert found.target.as_json() == {"branch": "main", "snapshot": None}
    assert old.query(AGES, target=ReadTarget.branch("main")).graph_commit_id == last
    assert old.schema.source() == OLD
    assert len(list(old.export_lines())) == 2
    assert graph.query(NAMES).row_count == 4


def test_it_reads_what_is_newest_where_the_schema_has_not_moved(graph: Graph) -> None:
    old = held(graph)
    old.mutate(ADD, params={"name": "Ben"})
    assert old.query(AGES).row_count == 2


def test_it_does_not_write_on_another_schema(graph: Graph) -> None:
    old = held(graph)
    graph.apply_schema(NEW)
    before = graph.snapshot().commit_id
    with pytest.raises(ConflictError, match="schema drift") as refused:
        old.mutate(ADD, params={"name": "Ben"})
    assert refused.value.code == "OG-SCHEMA-HELD"
    with pytest.raises(ConflictError, match="schema drift"):
        old.load(b'{"type": "Person", "data": {"name": "Ben"}}', mode="append")
    assert graph.snapshot().commit_id == before
    graph.mutate(ADD, params={"name": "Ben"})


def test_a_mutation_that_is_no_query_of_the_new_schema_is_refused_as_drift(graph: Graph) -> None:
    old = held(graph)
    graph.apply_schema(NEW)
    with pytest.raises(ConflictError, match="schema drift"):
        old.mutate('query set() { update Person set { age: 1 } where name = "Ada" }')


def test_each_of_two_older_schemas_has_its_own_last_snapshot(graph: Graph) -> None:
    first = held(graph)
    graph.apply_schema("node Person { name: String @key  age: I32?  city: String? }")
    second = held(graph)
    graph.mutate(ADD, params={"name": "Ben"})
    graph.apply_schema(NEW)
    assert first.query(AGES).row_count == 1
    assert second.query(AGES).row_count == 2


def test_the_newest_schema_of_a_text_is_found(graph: Graph) -> None:
    digest = sha256(OLD.encode()).hexdigest()
    old = accepted_schema(graph.schema)
    graph.apply_schema(NEW)
    assert accepted_schema(graph.schema, digest) == old
    assert accepted_schema(graph.schema, "0" * 64) == accepted_schema(graph.schema)
    assert accepted_schema(graph.schema).source == NEW


def test_a_schema_that_a_cleanup_has_removed_is_not_looked_for(graph: Graph) -> None:
    graph.branch_create("draft")
    graph.mutate(ADD, params={"name": "Ben"}, branch="draft")
    graph.branch_merge("draft")
    graph.branch_delete("draft")
    graph.mutate(ADD, params={"name": "Cy"})
    graph.cleanup(keep_versions=1, orphan_age_s=0, confirm=True)
    again = Graph.open(graph.uri, durability="process", auto_optimize=False)
    assert accepted_schema(again.schema, "0" * 64).source == OLD
    with pytest.raises(ConflictError, match="schema drift"):
        again.with_schema("0" * 64).query(AGES)
