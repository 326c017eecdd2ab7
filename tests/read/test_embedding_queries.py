"""A text as the query of `nearest`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from omnigraph.graph import Graph
from omnigraph.search.embedding.errors import EmbeddingKeyMissingError, EmbeddingModelMismatchError

SCHEMA = """\
node Note {
    key: String @key
    text: String?
    free: Vector(4)?
    bound: Vector(4)? @embed("text", model="acme/small")
}
"""
ALPHA = [-0.54204881, -0.47179943, 0.16090508, 0.67653376]
BETA = [0.66596329, -0.56221950, -0.41636753, 0.25892115]
KEYS = ("OMNIGRAPH_EMBED_PROVIDER", "OMNIGRAPH_EMBED_MODEL", "OPENROUTER_API_KEY", "OPENAI_API_KEY")


def nearest(name: str) -> str:
    order = f"order {{ nearest($n.{name}, $t) }} limit 1"
    return f"query q($t: String) {{ match {{ $n: Note }} return {{ $n }} {order} }}"


@pytest.fixture
def graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Graph:
    for key in KEYS:
        monkeypatch.delenv(key, raising=False)
    graph = Graph.init(tmp_path / "g", SCHEMA, durability="process")
    rows = [
        {"type": "Note", "data": {"key": key, "free": vector, "bound": vector}}
        for key, vector in (("a", ALPHA), ("b", BETA))
    ]
    graph.load("\n".join(json.dumps(row) for row in rows).encode(), mode="append")
    return graph


def test_a_text_is_embedded_by_the_configured_provider(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIGRAPH_EMBED_PROVIDER", "mock")
    for text, key in (("alpha", "a"), ("beta", "b")):
        assert graph.query(nearest("free"), params={"t": text}).json_rows() == [{"n": key}]


def test_without_a_provider_the_error_says_what_to_set(graph: Graph) -> None:
    with pytest.raises(EmbeddingKeyMissingError, match="OPENAI_API_KEY"):
        graph.query(nearest("free"), params={"t": "alpha"})


def test_another_model_than_the_recorded_one_is_refused(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIGRAPH_EMBED_PROVIDER", "mock")
    monkeypatch.setenv("OMNIGRAPH_EMBED_MODEL", "acme/large")
    with pytest.raises(EmbeddingModelMismatchError, match="acme/small"):
        graph.query(nearest("bound"), params={"t": "alpha"})


def test_a_vector_needs_no_provider(graph: Graph) -> None:
    text = nearest("bound").replace("$t: String", "$t: Vector(4)")
    assert graph.query(text, params={"t": BETA}).json_rows() == [{"n": "b"}]
