"""Undoing commits across changes of the schema."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from omnigraph.graph import Graph, MergeConflictError, ReadTarget
from omnigraph.merge.revert_schema import SchemaRevertError
from support.places import Place

SCHEMA = "node Doc { slug: String @key   note: String?   size: I32 }"
RENAMED = 'node Doc { slug: String @key   remark: String? @rename_from("note")   size: I32 }'
ROWS = b'{"type": "Doc", "data": {"slug": "a", "note": "old", "size": 1}}\n'


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with Place(str(tmp_path / "graph")).init(SCHEMA) as graph:
        graph.load(ROWS, mode="append")
        yield graph


def rows(graph: Graph) -> list[dict[str, Any]]:
    names = graph.catalog().node_types["Doc"].properties
    returned = ", ".join(f"$d.{name} as {name}" for name in names)
    query = f"query all() {{ match {{ $d: Doc }} return {{ {returned} }} order {{ $d.slug asc }} }}"
    return list(graph.query(query).to_pylist())


def head(graph: Graph) -> str:
    return graph.commits.head_id()


def test_an_old_commit_is_undone_under_the_names_of_today(graph: Graph) -> None:
    graph.mutate('query q() { update Doc set { note: "new" } where slug = "a" }')
    changed = head(graph)
    graph.schema.apply(RENAMED)
    graph.schema.apply("node Doc { slug: String @key   remark: String?   size: I64   mark: I32? }")
    graph.commits.revert(changed)
    assert rows(graph) == [{"mark": None, "remark": "old", "size": 1, "slug": "a"}]


def test_names_and_null_properties_are_undone_with_later_rows_in_place(graph: Graph) -> None:
    before = graph.catalog().node_types["Doc"].properties
    renamed = RENAMED.replace("size: I32 }", "size: I32   mark: I32? }")
    graph.schema.apply(renamed)
    changed = head(graph)
    graph.load(b'{"type": "Doc", "data": {"slug": "b", "remark": "x", "size": 2}}', mode="append")
    done = graph.commits.revert(changed)
    assert done.commit is not None
    assert done.commit.properties["reverted_commit_id"] == changed
    assert graph.catalog().node_types["Doc"].properties == before
    assert rows(graph) == [
        {"note": "old", "size": 1, "slug": "a"},
        {"note": "x", "size": 2, "slug": "b"},
    ]
    first = next(graph.changes.between(ReadTarget.commit(changed), "main"))
    assert len(first["schema_changes"]) == 2


def test_values_that_came_since_keep_a_property_from_being_undone(graph: Graph) -> None:
    graph.schema.apply(SCHEMA.replace("size: I32 }", "size: I32   mark: I32? }"))
    changed = head(graph)
    graph.mutate('query q() { update Doc set { mark: 3 } where slug = "a" }')
    with pytest.raises(MergeConflictError, match="mark") as refused:
        graph.commits.revert(changed)
    assert refused.value.hint is not None
    assert refused.value.hint.startswith("change branch 'main' first")
    assert rows(graph)[0]["mark"] == 3


@pytest.mark.parametrize(
    ("schema", "step"),
    [
        ("node Doc { slug: String @key   size: I32 }", "drop property node:Doc.note"),
        (SCHEMA.replace("size: I32", "size: I64"), "widen property node:Doc.size"),
        (SCHEMA.replace("size: I32", "size: I32   mark: I32 @default(3)"), "filled with 3"),
    ],
)
def test_steps_that_stored_values_depend_on_are_refused_with_their_list(
    graph: Graph, schema: str, step: str
) -> None:
    graph.schema.apply(schema)
    before = head(graph)
    with pytest.raises(SchemaRevertError, match=step) as raised:
        graph.commits.revert(before)
    refusal = raised.value.details["schema_revert_refusal"]
    assert isinstance(refusal, dict)
    assert refusal["graph_commit_id"] == before
    assert any(step in each for each in refusal["steps"])
    assert head(graph) == before
