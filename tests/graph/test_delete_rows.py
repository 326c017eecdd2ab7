"""Deleting rows by their ids."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from omnigraph import Graph
from omnigraph.errors import InvalidInputError, PreconditionError

SCHEMA = """\
node Person { name: String @key }
node Note { text: String? }
edge Knows: Person -> Person
edge About: Note -> Person
"""
LINES: list[dict[str, object]] = [
    *({"type": "Person", "data": {"name": name}} for name in ("ann", "bob", "cy")),
    {"type": "Note", "data": {"id": "n1", "text": "x"}},
    {"edge": "Knows", "from": "ann", "to": "bob", "data": {"id": "k1"}},
    {"edge": "Knows", "from": "ann", "to": "bob", "data": {"id": "k2"}},
    {"edge": "About", "from": "n1", "to": "ann", "data": {"id": "a1"}},
]


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    made = Graph.init(tmp_path / "g.omni", SCHEMA, durability="process", auto_optimize=False)
    made.load("\n".join(map(json.dumps, LINES)).encode(), mode="append")
    return made


def rows(graph: Graph) -> dict[str, int]:
    entries = graph.snapshot().entries
    return {key: entry.row_count for key, entry in entries.items() if entry.row_count}


def test_one_of_two_parallel_edges_is_deleted(graph: Graph) -> None:
    result = graph.delete_rows({"edge:Knows": ["k1", "none"]})
    assert (result.deleted, result.commit is not None) == ({"edge:Knows": 1}, True)
    assert rows(graph) == {"node:Person": 3, "node:Note": 1, "edge:Knows": 1, "edge:About": 1}


def test_a_node_goes_with_its_edges_of_all_types_in_one_commit(graph: Graph) -> None:
    before = len(graph.commits.list())
    result = graph.delete_rows(
        {"edge:Knows": ["k1"], "node:Person": ["ann", "cy"], "node:Note": []}
    )
    assert result.deleted == {"edge:Knows": 1, "node:Person": 2, "node:Note": 0}
    assert rows(graph) == {"node:Person": 1, "node:Note": 1}
    assert len(graph.commits.list()) == before + 1


def test_nothing_to_delete_makes_no_commit_and_another_head_refuses(graph: Graph) -> None:
    head = graph.commits.head_id()
    assert graph.delete_rows({"node:Person": ["nobody"]}).commit is None
    graph.delete_rows({"node:Person": ["cy"]}, expected_head=head)
    with pytest.raises(PreconditionError):
        graph.delete_rows({"node:Person": ["bob"]}, expected_head=head)
    assert rows(graph)["node:Person"] == 2


@pytest.mark.parametrize(
    ("ids", "said"),
    [
        ({"node:Person": "cy"}, "is one text"),
        ({"node:Person": [7]}, "is not the id of a row"),
        ({"node:Person": [None]}, "is not the id of a row"),
        ({"node:Person": ["\ud800"]}, "is not the id of a row"),
        ({"node:Persn": ["cy"]}, "no type 'node:Persn'"),
        ({"Person": ["cy"]}, "no type 'Person'"),
        (["cy"], "ids by type"),
    ],
)
def test_what_names_no_rows_is_refused_and_nothing_is_deleted(
    graph: Graph, ids: Any, said: str
) -> None:
    with pytest.raises(InvalidInputError, match=said):
        graph.delete_rows(ids)
    assert rows(graph)["node:Person"] == 3


def test_ids_may_repeat_and_come_from_any_collection(graph: Graph) -> None:
    assert graph.delete_rows({"node:Person": ("cy", "cy")}).deleted == {"node:Person": 1}
    assert graph.delete_rows({"node:Person": {"bob"}}).deleted == {"node:Person": 1}
    assert rows(graph) == {"node:Person": 1, "node:Note": 1, "edge:About": 1}
