"""Vector search through an index: the same scores as without, and nearly the same rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from omnigraph.graph import Graph

ROWS = 12_000
DIMENSION = 8
QUERY = (
    "query q($v: Vector(8)) { match { $d: Doc  $d.n < 6000 }"
    " return { $d.n as n, nearest($d.vec, $v) as far } order { far } limit 10 }"
)


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
