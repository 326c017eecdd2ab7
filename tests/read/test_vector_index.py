"""Vector search through an index: the same scores as without, and nearly the same rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from omnigraph.graph import Graph
from omnigraph.maintenance import build_indexes as indices

ROWS = 12_000
DIMENSION = 8
QUERY = (
    "query q($v: Vector(8)) { match { $d: Doc  $d.n < 6000 }"
    " return { $d.n as n, nearest($d.vec, $v) as far } order { far } limit 10 }"
)


def test_an_index_never_answers_for_the_vector_that_a_row_had_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A changed row keeps its id, and an index knows rows by their ids."""
    monkeypatch.setattr(indices, "VECTOR_ROWS_MIN", 100)
    rows, change = 300, "query q($v: Vector(8)) { update Doc set { vec: $v } where n = 7 }"
    schema = "node Doc { slug: String @key  n: I32  vec: Vector(8) @index }"
    graph = Graph.init(tmp_path / "g", schema, durability="process", auto_optimize=False)
    vectors = np.random.default_rng(3).normal(size=(rows, DIMENSION)).astype(np.float32)
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), DIMENSION)
    numbers = pa.array(range(rows), pa.int32())
    table = pa.table({"slug": [f"d{n}" for n in range(rows)], "n": numbers, "vec": column})
    graph.load_tables(nodes={"Doc": table}, mode="append")
    graph.ensure_indices()
    assert any("vec" in index.columns for index in graph.snapshot().open("node:Doc").indexes())
    old = vectors[7].tolist()
    graph.mutate(change, params={"v": (-vectors[7]).tolist()})
    for _ in range(2):
        nearest = graph.query(QUERY, params={"v": old}).json_rows()
        assert 7 not in [row["n"] for row in nearest]
        found = graph.query(QUERY, params={"v": (-vectors[7]).tolist()}).json_rows()
        assert (found[0]["n"], len({row["n"] for row in found})) == (7, 10)
        assert found[0]["far"] == pytest.approx(0.0, abs=1e-5)
        graph.optimize()


@pytest.mark.slow
def test_an_index_keeps_scores_exact_and_finds_the_nearest(tmp_path: Path) -> None:
    schema = "node Doc { slug: String @key  n: I32  vec: Vector(8) @index }"
    graph = Graph.init(tmp_path / "g", schema, durability="process")
    generator = np.random.default_rng(7)
    vectors = generator.normal(size=(ROWS, DIMENSION)).astype(np.float32)
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), DIMENSION)
    names = [f"d{number}" for number in range(ROWS)]
    numbers = pa.array(range(ROWS), pa.int32())
    table = pa.table({"slug": names, "n": numbers, "vec": column})
    graph.load_tables(nodes={"Doc": table}, mode="append")
    graph.ensure_indices()
    indexes = graph.snapshot().open("node:Doc").indexes()
    assert any("vec" in index.columns for index in indexes)
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    hits = 0
    for number in range(20):
        query = vectors[number] + np.float32(0.1)
        expected = 1 - units[:6000] @ (query / np.linalg.norm(query))
        best = set(np.argsort(expected)[:10].tolist())
        rows = graph.query(QUERY, params={"v": query.tolist()}).json_rows()
        assert len(rows) == 10
        for row in rows:
            assert row["far"] == pytest.approx(expected[row["n"]], abs=1e-5)
        hits += len(best & {row["n"] for row in rows})
    assert hits >= 0.95 * 200
