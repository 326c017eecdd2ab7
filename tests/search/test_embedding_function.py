"""Vectors from a function of the caller, and settings that change while a graph is open."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from omnigraph import Graph
from omnigraph.search.embedding.config import EmbeddingConfig
from omnigraph.search.embedding.errors import (
    EmbeddingFunctionError,
    EmbeddingModelMismatchError,
    EmbeddingModelsMixedError,
    UnknownEmbeddingProviderError,
)

SCHEMA = 'node Doc { slug: String @key  text: String  vector: Vector(2)? @embed("text") }'
NEAREST = (
    "query near($q: String) { match { $d: Doc } return { $d.slug }"
    " order { nearest($d.vector, $q) } limit 1 }"
)
ROWS = b"".join(
    b'{"type":"Doc","data":{"slug":"%s","text":"%s"}}\n' % (slug, text)
    for slug, text in ((b"a", b"xx"), (b"b", b"yyyyyyyy"))
)


def by_length(texts: list[str]) -> list[list[float]]:
    """Return vectors that point upwards the more, the longer a text is."""
    return [[1.0, float(len(text))] for text in texts]


def test_a_function_makes_the_vectors_of_loads_and_queries(tmp_path: Path) -> None:
    with Graph.init(tmp_path / "g.omni", SCHEMA, embedding=by_length) as graph:
        graph.load(ROWS, mode="append")
        assert graph.query(NEAREST, params={"q": "zzzzzzz"})["d.slug"] == ["b"]
        assert graph.query(NEAREST, params={"q": "z"})["d.slug"] == ["a"]


def test_the_origin_is_stored_with_the_vectors_and_checked(tmp_path: Path) -> None:
    first = EmbeddingConfig.of_function(by_length, model="lengths-1")
    with Graph.init(tmp_path / "g.omni", SCHEMA, embedding=first) as graph:
        graph.load(ROWS, mode="append")
    other = EmbeddingConfig.of_function(by_length, model="lengths-2")
    with (
        Graph.open(tmp_path / "g.omni", embedding=other) as graph,
        pytest.raises(EmbeddingModelMismatchError, match="lengths-1"),
    ):
        graph.query(NEAREST, params={"q": "z"})


def test_embedding_again_with_another_model_makes_its_texts_comparable(tmp_path: Path) -> None:
    with Graph.init(
        tmp_path / "g.omni", SCHEMA, embedding=EmbeddingConfig.of_function(by_length, model="1")
    ) as graph:
        graph.load(ROWS, mode="append")
    other = EmbeddingConfig.of_function(by_length, model="2")
    with Graph.open(tmp_path / "g.omni", embedding=other) as graph:
        graph.embed(["Doc"])
        assert len(graph.query(NEAREST, params={"q": "z"})) == 1


def test_vectors_of_two_models_are_not_compared(tmp_path: Path) -> None:
    """After a load with another function all queries were answered from both kinds of vectors."""
    root = tmp_path / "g.omni"
    of = partial(EmbeddingConfig.of_function, by_length)
    with Graph.init(root, SCHEMA, embedding=of(model="1")) as graph:
        graph.load(ROWS, mode="append")
    with Graph.open(root, embedding=of(model="2")) as graph:
        graph.load(ROWS.replace(b'"a"', b'"c"').replace(b'"b"', b'"d"'), mode="append")
        with pytest.raises(EmbeddingModelsMixedError, match=r"from '1', and texts .* with '2'"):
            graph.query(NEAREST, params={"q": "z"})
    with Graph.open(root, embedding=of(model="1")) as graph:
        with pytest.raises(EmbeddingModelsMixedError, match=r"several models, of '[cd]' from '2'"):
            graph.query(NEAREST, params={"q": "z"})
        graph.embed()
        assert len(graph.query(NEAREST, params={"q": "z"})) == 1


def test_records_of_rows_that_are_not_there_do_not_count(tmp_path: Path) -> None:
    """Branches share the records, and deleted rows leave theirs behind."""
    root = tmp_path / "g.omni"
    of = partial(EmbeddingConfig.of_function, by_length)
    with Graph.init(root, SCHEMA, embedding=of(model="1")) as graph:
        graph.load(ROWS, mode="append")
        graph.branch_create("review")
        graph.load([{"type": "Doc", "data": {"slug": "x", "text": "gone"}}], mode="append")
    rows = ({"slug": "c", "text": "new"}, {"slug": "a", "text": "another text"})
    with Graph.open(root, embedding=of(model="2")) as graph:
        graph.load([{"type": "Doc", "data": row} for row in rows], mode="merge", branch="review")
        graph.mutate('query gone() { delete Doc where slug = "x" }')
    with Graph.open(root, embedding=of(model="1")) as graph:
        assert len(graph.query(NEAREST, params={"q": "z"})) == 1


@pytest.mark.parametrize(
    ("returned", "reason"),
    [
        ([[1.0, 2.0]], "1 by 2 numbers instead of 2 by 2"),
        ([[1.0], [2.0]], "2 by 1 numbers instead of 2 by 2"),
        ("ab", "could not convert"),
        (np.zeros((2, 2, 2)), "2 by 2 by 2 numbers"),
    ],
)
def test_a_function_that_returns_something_else(
    tmp_path: Path, returned: object, reason: str
) -> None:
    config = EmbeddingConfig.of_function(lambda _: returned, model="wrong")
    with (
        Graph.init(tmp_path / "g.omni", SCHEMA, embedding=config) as graph,
        pytest.raises(EmbeddingFunctionError, match=reason),
    ):
        graph.load(ROWS, mode="append")


def test_a_provider_that_is_misspelled_later_makes_no_vectors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The settings of the first write were kept, and mock vectors were committed."""
    monkeypatch.setenv("OMNIGRAPH_EMBED_PROVIDER", "mock")
    with Graph.init(tmp_path / "g.omni", SCHEMA) as graph:
        graph.load(ROWS, mode="append")
        monkeypatch.setenv("OMNIGRAPH_EMBED_PROVIDER", "mokc")
        with pytest.raises(UnknownEmbeddingProviderError):
            graph.load(ROWS.replace(b'"a"', b'"c"'), mode="merge")


def test_a_function_without_a_name_needs_one(tmp_path: Path) -> None:
    """Two lambdas of one module would share the origin of their vectors."""
    for nameless in (lambda texts: by_length(texts), partial(by_length)):  # noqa: PLW0108
        with pytest.raises(EmbeddingFunctionError, match="no name of its own"):
            Graph.init(tmp_path / "g.omni", SCHEMA, embedding=nameless)


@pytest.mark.parametrize("wrong", ["openai", 3])
def test_what_is_no_function_is_refused(tmp_path: Path, wrong: object) -> None:
    with pytest.raises(EmbeddingFunctionError, match="it is no function"):
        Graph.init(tmp_path / "g.omni", SCHEMA, embedding=wrong)  # type: ignore[arg-type]
