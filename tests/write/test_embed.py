"""Vectors that `@embed` asks for, made while rows are written and for rows that are stored."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from omnigraph.errors import OmnigraphError
from omnigraph.graph import Graph
from omnigraph.names import UnknownChoiceError
from omnigraph.search.embedding.errors import (
    EmbeddingKeyMissingError,
    EmbeddingModelMismatchError,
    EmbeddingRequestError,
)
from omnigraph.search.embedding.vectors import mock_vectors
from omnigraph.write.embed.row_embedder import VectorTextMissingError
from omnigraph.write.embed.stored import NothingToEmbedError, UnknownNodeTypeError
from omnigraph.write.mutate.rows import MutationValueError
from omnigraph.write.rules.violations import ValidationError
from omnigraph.write.stage.delta import GraphDelta, TableDelta
from omnigraph.write.stage.stored_rows import StoredRows
from support.embedding_fixtures import sent, vectors
from support.embedding_server import EmbeddingServer
from support.places import session_of

SCHEMA = """\
node Note {
    key: String @key
    text: String?
    rank: I32?
    vec: Vector(4)? @embed("text")
}
node Must { key: String @key  text: String  vec: Vector(4) @embed("text") }
node Plain { key: String @key }
"""
GIVEN = [1.0, 0.0, 0.0, 0.0]
pytestmark = pytest.mark.usefixtures("no_provider")


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with Graph.init(tmp_path / "g", SCHEMA, durability="process", auto_optimize=False) as made:
        yield made


def insert(graph: Graph, key: str, **values: Any) -> None:
    fields = ", ".join(f"{name}: ${name}" for name in ("key", *values))
    kinds = {"text": "String", "rank": "I32", "vec": "Vector(4)"}
    params = ", ".join(f"${name}: {kinds[name]}" for name in values)
    graph.mutate(
        f"query q($key: String, {params}) {{ insert Note {{ {fields} }} }}",
        params={"key": key, **values},
    )


def of(text: str) -> list[float]:
    found: list[float] = mock_vectors([text], 4)[0].tolist()
    return found


def lines(*rows: dict[str, Any], type_name: str = "Note") -> bytes:
    return "\n".join(json.dumps({"type": type_name, "data": row}) for row in rows).encode()


# -- mutations ------------------------------------------------------------------------------------


def test_a_mutation_fills_a_vector_that_is_missing(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIGRAPH_EMBED_PROVIDER", "mock")
    insert(graph, "a", text="alpha")
    insert(graph, "b", text="alpha", vec=GIVEN)
    insert(graph, "c", text="  ")
    insert(graph, "d", rank=1)
    assert vectors(graph) == {"a": of("alpha"), "b": GIVEN, "c": None, "d": None}


def test_an_edge_type_with_the_name_of_an_embedded_node_type_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIGRAPH_EMBED_PROVIDER", "mock")
    with Graph.init(tmp_path / "g", SCHEMA + "edge Note: Plain -> Plain") as graph:
        snapshot = graph.snapshot()
        row = {"id": "e", "src": "a", "dst": "a"}
        rows = pa.Table.from_pylist([row], snapshot.open("edge:Note").schema)
        table = TableDelta("edge:Note", rows, pa.array([], pa.utf8()))
        embedder = session_of(graph).embedder("missing")
        delta = GraphDelta({"edge:Note": table})
        catalog = snapshot.catalog
        assert embedder.filled(delta, catalog, StoredRows(snapshot)) == delta


def test_without_a_provider_nothing_is_made_and_nothing_fails(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "a key that is there for something else")
    insert(graph, "a", text="alpha")
    assert vectors(graph) == {"a": None}


def test_embed_off_makes_nothing(graph: Graph, server: EmbeddingServer) -> None:
    graph.mutate('query q() { insert Note { key: "a", text: "x" } }', embed="off")
    assert vectors(graph) == {"a": None}
    assert sent(server) == []


def test_an_unknown_embed_mode_is_refused(graph: Graph) -> None:
    with pytest.raises(UnknownChoiceError, match="missing, all, off"):
        graph.mutate('query q() { insert Note { key: "a" } }', embed="some")


def test_all_makes_given_vectors_too(graph: Graph, server: EmbeddingServer) -> None:
    query = 'query q() { insert Note { key: "a", text: "x", vec: [1, 0, 0, 0] } }'
    graph.mutate(query)
    assert vectors(graph) == {"a": GIVEN}
    graph.mutate(query, embed="all")
    assert vectors(graph)["a"] != GIVEN
    assert sent(server) == ["x"]


def test_all_without_a_provider_says_what_to_set(graph: Graph) -> None:
    with pytest.raises(EmbeddingKeyMissingError, match="OPENAI_API_KEY"):
        graph.mutate('query q() { insert Note { key: "a", text: "x" } }', embed="all")
    assert vectors(graph) == {}


def test_a_text_is_paid_for_once(graph: Graph, server: EmbeddingServer) -> None:
    insert(graph, "a", text="x")
    before = vectors(graph)["a"]
    insert(graph, "a", text="x", rank=2)
    insert(graph, "b", text="x")
    graph.mutate('query q() { update Note set { rank: 3 } where key = "a" }')
    assert sent(server) == ["x"]
    assert vectors(graph) == {"a": before, "b": before}


def test_a_changed_text_gets_a_new_vector_and_a_given_vector_stays(
    graph: Graph, server: EmbeddingServer
) -> None:
    insert(graph, "a", text="x")
    insert(graph, "b", text="x", vec=GIVEN)
    graph.mutate('query q() { update Note set { text: "y" } where rank is null }')
    assert sent(server) == ["x", "y"]
    assert vectors(graph)["b"] == GIVEN
    assert vectors(graph)["a"] not in (None, GIVEN)


def test_a_vector_is_still_ours_after_type_and_property_were_renamed(
    graph: Graph, server: EmbeddingServer
) -> None:
    insert(graph, "a", text="x")
    insert(graph, "b", text="z")
    renamed = SCHEMA.replace("node Note", 'node Memo @rename_from("Note")')
    graph.apply_schema(renamed.replace("vec: Vector(4)?", "line: Vector(4)? @rename_from(vec)"))
    assert graph.embed().embedded_records == 0
    graph.mutate('query q() { update Memo set { text: "y" } where key = "a" }')
    graph.mutate('query q() { update Memo set { rank: 1 } where key = "b" }')
    assert sent(server) == ["x", "z", "y"]


def test_a_vector_that_replaces_one_of_ours_counts_as_given(
    graph: Graph, server: EmbeddingServer
) -> None:
    insert(graph, "a", text="x")
    graph.mutate('query q() { update Note set { vec: [1, 0, 0, 0] } where key = "a" }')
    graph.mutate('query q() { update Note set { text: "y" } where key = "a" }')
    assert vectors(graph) == {"a": GIVEN}
    assert sent(server) == ["x"]


def test_another_model_makes_the_vector_of_a_touched_row_again(
    tmp_path: Path, server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for model in ("small", "large"):
        monkeypatch.setenv("OMNIGRAPH_EMBED_MODEL", model)
        root = tmp_path / "g"
        with (
            Graph.open(root) if root.exists() else Graph.init(root, SCHEMA, durability="process")
        ) as graph:
            graph.mutate('query q() { upsert Note { key: "a", text: "x" } }')
    assert [request.body["model"] for request in server.seen] == ["small", "large"]


def test_a_pinned_model_refuses_another_one_before_any_request(
    tmp_path: Path, server: EmbeddingServer
) -> None:
    schema = SCHEMA.replace('@embed("text")\n', '@embed("text", model="acme/small")\n')
    with Graph.init(tmp_path / "g", schema, durability="process") as graph:
        with pytest.raises(EmbeddingModelMismatchError, match="acme/small"):
            insert(graph, "a", text="x")
        assert vectors(graph) == {}
    assert server.seen == []


def test_a_provider_that_fails_fails_the_write(graph: Graph, server: EmbeddingServer) -> None:
    server.reply((400, b'{"error": {"message": "no such model"}}'))
    with pytest.raises(EmbeddingRequestError, match="no such model"):
        insert(graph, "a", text="x")
    assert vectors(graph) == {}
    server.reply((429, b""), (503, b""))
    insert(graph, "a", text="x")
    assert vectors(graph)["a"] is not None


def test_a_required_vector_may_be_left_out_when_it_can_be_made(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = "query q($t: String) { insert Must { key: $t, text: $t } }"
    with pytest.raises(MutationValueError, match="vec"):
        graph.mutate(query, params={"t": "alpha"})
    monkeypatch.setenv("OMNIGRAPH_EMBED_PROVIDER", "mock")
    graph.mutate(query, params={"t": "alpha"})
    assert vectors(graph, "Must") == {"alpha": of("alpha")}
    blank = 'query q() { insert Must { key: "b", text: " " } }'
    with pytest.raises(VectorTextMissingError, match="'b'") as refused:
        graph.mutate(blank)
    assert refused.value.hint


def test_texts_go_out_in_batches(graph: Graph, server: EmbeddingServer) -> None:
    statements = " ".join(f'insert Note {{ key: "k{n}", text: "t{n % 200}" }}' for n in range(260))
    graph.mutate(f"query q() {{ {statements} }}")
    assert sorted(sent(server)) == sorted(f"t{n}" for n in range(200))
    assert len(server.seen) == 2
    assert None not in vectors(graph).values()


# -- loads ----------------------------------------------------------------------------------------


def test_a_load_fills_missing_vectors_and_pays_once(graph: Graph, server: EmbeddingServer) -> None:
    rows = [{"key": f"k{n}", "text": "same" if n % 2 else None} for n in range(6)]
    first = graph.load(lines(*rows, {"key": "given", "text": "same", "vec": GIVEN}), mode="append")
    assert sent(server) == ["same"]
    found = vectors(graph)
    assert found["given"] == GIVEN
    assert (found["k0"], found["k1"] == found["k3"] != GIVEN) == (None, True)
    # The same rows again are the same rows: the vectors make none of them different.
    again = graph.load(lines(*rows), mode="merge")
    assert first.commit is not None
    assert again.commit is None
    assert sent(server) == ["same"]


def test_a_load_makes_stale_vectors_again(graph: Graph, server: EmbeddingServer) -> None:
    graph.load(lines({"key": "a", "text": "x"}, {"key": "b", "text": "y"}), mode="append")
    graph.load(lines({"key": "a", "text": "long"}, {"key": "b", "text": "y"}), mode="merge")
    assert sent(server) == ["x", "y", "long"]
    exported = vectors(graph)
    graph.load(lines({"key": "a", "text": "longer", "vec": exported["a"]}), mode="merge")
    assert sent(server)[3:] == ["longer"]
    graph.load(lines({"key": "a", "text": "longest", "vec": GIVEN}), mode="merge")
    assert vectors(graph)["a"] == GIVEN


def test_a_load_may_leave_out_required_vectors_beside_a_text(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = lines({"key": "a", "text": "alpha"}, {"key": "b", "text": "beta"}, type_name="Must")
    with pytest.raises(ValidationError, match="vec"):
        graph.load(data, mode="append")
    monkeypatch.setenv("OMNIGRAPH_EMBED_PROVIDER", "mock")
    with pytest.raises(ValidationError, match="vec"):
        graph.load(data, mode="append", embed="off")
    with pytest.raises(ValidationError, match="vec") as refused:
        graph.load(data + b"\n" + lines({"key": "c", "text": " "}, type_name="Must"), mode="append")
    assert len(refused.value.violations) == 1
    graph.load(data, mode="append")
    assert vectors(graph, "Must") == {"a": of("alpha"), "b": of("beta")}


def test_tables_are_filled_too(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_EMBED_PROVIDER", "mock")
    table = pa.table({"key": ["a", "b"], "text": ["alpha", None]})
    graph.load_tables(nodes={"Note": table}, mode="append")
    assert vectors(graph) == {"a": of("alpha"), "b": None}


# -- stored rows ----------------------------------------------------------------------------------


def test_stored_rows_are_filled_as_one_commit(graph: Graph, server: EmbeddingServer) -> None:
    rows = [{"key": f"k{n}", "text": f"t{n}"} for n in range(3)]
    graph.load(
        lines(*rows, {"key": "given", "text": "t0", "vec": GIVEN}), mode="append", embed="off"
    )
    before = len(graph.list_commits())
    result = graph.embed(["Note"])
    assert result.embedded_records == 3
    assert (result.texts_sent, result.rows) == (3, (("Note", 3),))
    assert len(graph.list_commits()) == before + 1
    assert result.commit is not None
    assert vectors(graph)["given"] == GIVEN
    again = graph.embed()
    assert (again.commit, again.embedded_records, again.texts_sent) == (None, 0, 0)
    assert again.to_json()["types"] == [
        {"name": "Must", "embedded_records": 0},
        {"name": "Note", "embedded_records": 0},
    ]


def test_stale_vectors_of_stored_rows_are_made_again(graph: Graph, server: EmbeddingServer) -> None:
    insert(graph, "a", text="x")
    insert(graph, "b", text="y")
    graph.mutate('query q() { update Note set { text: "z" } where key = "a" }', embed="off")
    assert graph.embed().rows == (("Must", 0), ("Note", 1))
    assert sent(server) == ["x", "y", "z"]
    again = graph.embed(mode="all")
    assert (again.rows, again.texts_sent) == ((("Must", 0), ("Note", 2)), 2)


def test_embedding_works_on_a_branch_and_leaves_the_other_alone(
    graph: Graph, server: EmbeddingServer
) -> None:
    graph.mutate('query q() { insert Note { key: "a", text: "x" } }', embed="off")
    graph.branch_create("draft")
    assert graph.embed(branch="draft").embedded_records == 1
    assert vectors(graph) == {"a": None}
    assert sent(server) == ["x"]


def test_wrong_types_are_named(graph: Graph, server: EmbeddingServer) -> None:
    with pytest.raises(UnknownNodeTypeError, match="Nota") as refused:
        graph.embed(["Nota"])
    assert refused.value.hint is not None
    assert "Note" in refused.value.hint
    with pytest.raises(NothingToEmbedError, match="Plain"):
        graph.embed(["Plain"])
    assert server.seen == []


def test_a_failed_write_is_paid_for_again_and_leaves_no_record(
    graph: Graph, server: EmbeddingServer
) -> None:
    with pytest.raises(OmnigraphError):
        graph.mutate(
            'query q() { insert Note { key: "a", text: "x" } }', expected_head="01J" + "0" * 23
        )
    insert(graph, "a", text="x")
    assert vectors(graph)["a"] is not None
    assert np.isfinite(vectors(graph)["a"] or [np.nan]).all()
