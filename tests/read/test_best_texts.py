"""The best few texts are the first of all texts, ties included."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from omnigraph.graph import Graph

SCHEMA = "node D { key: String @key  body: String @index  i: I32 }"
COUNT = 400


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    """Documents of few lengths, so that many are equally relevant."""
    place: Path = tmp_path_factory.mktemp("texts") / "g"
    made = Graph.init(place, SCHEMA, durability="process", auto_optimize=False)
    bodies = ["sea " * (1 + number % 3) + "ship " * (number % 5) for number in range(COUNT)]
    keys = [f"d{(number * 37) % COUNT:03d}" for number in range(COUNT)]
    numbers = pa.array(range(COUNT), pa.int32())
    made.load_tables(
        nodes={"D": pa.table({"key": keys, "body": bodies, "i": numbers})}, mode="append"
    )
    made.ensure_indices()
    return made


@pytest.mark.parametrize("where", ["", "$d.i > 100"])
@pytest.mark.parametrize("page", ["limit 1", "limit 10", "limit 7 offset 5", "limit 390"])
def test_a_page_is_a_slice_of_everything(graph: Graph, where: str, page: str) -> None:
    query = "query q() {{ match {{ $d: D  {} }} return {{ $d }} order {{ bm25($d.body, {}) }} {} }}"
    words = '"sea ship"'
    everything = graph.query(query.format(where, words, "")).json_rows()
    found = graph.query(query.format(where, words, page)).json_rows()
    limit, _, offset = page.removeprefix("limit ").partition(" offset ")
    first = int(offset or 0)
    assert found == everything[first : first + int(limit)]
