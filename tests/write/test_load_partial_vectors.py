"""Vectors of rows that a merge names in part: they stay with their texts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from omnigraph.graph import Graph
from omnigraph.search.embedding.vectors import mock_vectors
from omnigraph.spark.load.workers import Tuning
from omnigraph.write.rules.violations import ValidationError
from omnigraph.write.stage.delta import WriteMode
from support.embedding_fixtures import vectors
from support.inline_jobs import inline_load

SCHEMA = """\
node Note { key: String @key  text: String?  rank: I32?  vec: Vector(4)? @embed("text") }
node Must { key: String @key  text: String  rank: I32?  vec: Vector(4) @embed("text") }
"""
GIVEN = [1.0, 0.0, 0.0, 0.0]
pytestmark = pytest.mark.usefixtures("no_provider")


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with Graph.init(tmp_path / "g", SCHEMA, durability="process", auto_optimize=False) as made:
        rows = [
            {"type": kind, "data": {"key": "a", "text": "old", "vec": GIVEN}}
            for kind in ("Note", "Must")
        ]
        made.load(b"".join(json.dumps(row).encode() + b"\n" for row in rows), mode="append")
        yield made


@pytest.fixture(params=["local", "tasks"])
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def merge(graph: Graph, way: str, kind: str, folder: Path, **data: Any) -> None:
    text = json.dumps({"type": kind, "data": {"key": "a", **data}}).encode()
    if way == "local":
        graph.load(text, mode="merge")
        return
    path = folder / "rows.jsonl"
    path.write_bytes(text)
    tuning = Tuning(driver_rows_max=0)
    inline_load(graph, path, tuning=tuning, mode=WriteMode.MERGE, embed="missing")


@pytest.mark.parametrize("kind", ["Note", "Must"])
def test_a_row_that_keeps_its_text_keeps_its_vector(
    graph: Graph, way: str, tmp_path: Path, kind: str
) -> None:
    merge(graph, way, kind, tmp_path, rank=1)
    merge(graph, way, kind, tmp_path, text="old", rank=2)
    assert vectors(graph, kind) == {"a": GIVEN}


def test_a_new_text_empties_the_vector_without_a_provider(
    graph: Graph, way: str, tmp_path: Path
) -> None:
    merge(graph, way, "Note", tmp_path, text="new")
    assert vectors(graph, "Note") == {"a": None}
    with pytest.raises(ValidationError, match="'vec' is required, and its text 'text' changes"):
        merge(graph, way, "Must", tmp_path, text="new")
    assert vectors(graph, "Must") == {"a": GIVEN}


@pytest.mark.parametrize("kind", ["Note", "Must"])
def test_a_new_text_gets_a_new_vector_from_a_provider(
    graph: Graph, way: str, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIGRAPH_EMBED_PROVIDER", "mock")
    merge(graph, way, kind, tmp_path, text="old", rank=3)
    assert vectors(graph, kind) == {"a": GIVEN}
    merge(graph, way, kind, tmp_path, text="new")
    assert vectors(graph, kind) == {"a": pytest.approx(mock_vectors(["new"], 4)[0].tolist())}


def test_a_null_vector_is_named(graph: Graph, way: str, tmp_path: Path) -> None:
    merge(graph, way, "Note", tmp_path, vec=None)
    assert vectors(graph, "Note") == {"a": None}
