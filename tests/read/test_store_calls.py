"""How often a query calls the store when nothing is cached: each call costs more than the rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from omnigraph.graph import Graph
from omnigraph.read.access.column_cache import MEMORY_MIB
from omnigraph.store.lance.handle import LanceHandle

SCHEMA = """\
node D { key: String @key  body: String @index  city: String @index  i: I32  vec: Vector(4) }
"""
COUNT = 200
POINT = "query q($k: String) { match { $d: D { key: $k } } return { $d, $d.city, $d.i, $d.city } }"
RESIDUAL = "query q() { match { $d: D  $d.key contains $d.city } return { $d, $d.i } }"
TEXT = "query q($q: String) { match { $d: D  search($d.body, $q) } return { $d.i } }"
BEST = "query q($q: String) { match { $d: D } return { $d, bm25($d.body, $q) as s } order { s }"
NEAR = "query q($v: Vector(4)) { match { $d: D } return { $d } order { nearest($d.vec, $v) }"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place: Path = tmp_path_factory.mktemp("calls") / "g"
    numbers = np.random.default_rng(3).normal(size=COUNT * 4).astype(np.float32)
    rows = pa.table(
        {
            "key": [f"d{number:03d}" for number in range(COUNT)],
            "body": ["sea " * (1 + number % 40) for number in range(COUNT)],
            "city": [f"d{number % 7:03d}" for number in range(COUNT)],
            "i": pa.array(range(COUNT), pa.int32()),
            "vec": pa.FixedSizeListArray.from_arrays(pa.array(numbers), 4),
        }
    )
    with Graph.init(place, SCHEMA, durability="process", auto_optimize=False) as made:
        made.load_tables(nodes={"D": rows}, mode="append")
        made.ensure_indices()
    return place


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts what is asked of datasets."""
    counted: Counter[str] = Counter()

    def count(name: str) -> None:
        inner = getattr(LanceHandle, name)

        def call(*arguments: Any, **options: Any) -> Any:
            counted[name] += 1
            return inner(*arguments, **options)

        monkeypatch.setattr(LanceHandle, name, call)

    count("batches")
    count("take")
    return counted


@pytest.fixture
def graph(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Graph]:
    """The graph, opened such that it keeps nothing."""
    monkeypatch.setenv(MEMORY_MIB, "0")
    with Graph.open(root, durability="process") as opened:
        yield opened


@pytest.mark.parametrize(
    ("text", "params", "asked"),
    [
        (POINT, {"k": "d017"}, (1, 0)),
        (POINT, {"k": "nobody"}, (1, 0)),
        (RESIDUAL, {}, (1, 0)),
        (TEXT, {"q": "sea"}, (2, 0)),
        (f"{BEST} limit 3 }}", {"q": "sea"}, (1, 1)),
        (f"{NEAR} limit 3 }}", {"v": [1.0, 0.0, 0.0, 0.5]}, (1, 1)),
    ],
)
def test_a_query_over_one_type_asks_no_more_than_it_must(
    graph: Graph, calls: Counter[str], text: str, params: dict[str, Any], asked: tuple[int, int]
) -> None:
    graph.snapshot()
    calls.clear()
    graph.query(text, params=params)
    assert (calls["batches"], calls["take"]) == asked


@pytest.mark.parametrize("memory_mib", ["0", "64"])
def test_columns_of_a_scan_come_as_they_are_shown(
    root: Path, monkeypatch: pytest.MonkeyPatch, memory_mib: str
) -> None:
    monkeypatch.setenv(MEMORY_MIB, memory_mib)
    with Graph.open(root, durability="process") as graph:
        for number in range(8):
            found = graph.query(POINT, params={"k": f"d{number:03d}"})
            shown = [array.to_pylist() for array in found.arrays]
            assert shown == [[f"d{number:03d}"], [f"d{number % 7:03d}"], [number], shown[1]]
            assert found.column_names == ["d", "d.city", "d.i", "d.city"]
        empty = graph.query(POINT, params={"k": "nobody"})
        assert [len(array) for array in empty.arrays] == [0, 0, 0, 0]
        assert empty.schema.types == found.schema.types
        residual = graph.query(RESIDUAL).json_rows()
        assert sorted(row["d.i"] for row in residual) == list(range(7))


@pytest.mark.parametrize("memory_mib", ["0", "64"])
@pytest.mark.parametrize("page", ["limit 5", "limit 60", "limit 7 offset 3", "limit 0", ""])
def test_equal_relevance_is_ordered_by_id_whatever_is_cached(
    root: Path, monkeypatch: pytest.MonkeyPatch, memory_mib: str, page: str
) -> None:
    monkeypatch.setenv(MEMORY_MIB, memory_mib)
    with Graph.open(root, durability="process") as graph:
        # Often enough for the ids to be cached, if anything is.
        for _ in range(6):
            found = graph.query(f"{BEST} {page} }}", params={"q": "sea"})
        everything = graph.query(f"{BEST} }}", params={"q": "sea"}).json_rows()
    scored = [(-float(str(row["s"])), str(row["d"])) for row in everything]
    assert scored == sorted(scored)
    assert len(scored) == COUNT
    limit, _, offset = page.removeprefix("limit ").partition(" offset ")
    first = int(offset or 0)
    last = first + int(limit) if limit else None
    assert found.json_rows() == everything[first:last]
