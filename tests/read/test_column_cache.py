"""Columns that stay in memory give what the store would give."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.cache import RECENT_VERSIONS_MAX
from omnigraph.clock import SystemClock
from omnigraph.graph import Graph, ReadTarget
from omnigraph.read.access.column_cache import (
    MEMORY_MIB,
    MEMORY_MIB_DEFAULT,
    ColumnCache,
    ReadMemoryError,
    RowPositions,
    column_memory,
)
from omnigraph.read.access.layers import FoundRows, Layer
from omnigraph.read.access.table_reader import TableReader
from omnigraph.read.limits import NO_LIMITS, Guard
from omnigraph.read.row_table import NULL
from omnigraph.search.table_delta import TableDelta
from omnigraph.search.table_state import TableState
from omnigraph.store.records import DatasetVersion

SCHEMA = "node N { key: String @key  i: I32?  tags: [String]? }"
TEXT = "query q() { match { $n: N } return { $n.i, count($n) as n } }"


@given(st.sets(st.integers(0, 40)), st.lists(st.integers(NULL, 45)))
def test_positions_are_those_of_the_rows(present: set[int], asked: list[int]) -> None:
    row_ids = sorted(present)
    found = RowPositions(np.array(row_ids, np.int64)).positions(np.array(asked, np.int64))
    known = {number: position for position, number in enumerate(row_ids)} | {NULL: NULL}
    if any(number not in known for number in asked) or (asked and not row_ids):
        assert found is None
    else:
        assert found is not None
        assert found.tolist() == [known[number] for number in asked]


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    made = Graph.init(tmp_path / "g", SCHEMA, durability="process")
    rows = pa.table(
        {
            "key": [f"n{number}" for number in range(40)],
            "i": pa.array(
                [None if number == 3 else number % 4 for number in range(40)], pa.int32()
            ),
            "tags": [["a"]] * 40,
        }
    )
    made.load_tables(nodes={"N": rows}, mode="append")
    return made


def reader(graph: Graph, cache: ColumnCache) -> TableReader:
    return TableReader(graph.snapshot(), Guard(NO_LIMITS, SystemClock()), cache)


def test_a_column_is_cached_after_a_few_fetches_and_not_read_again(graph: Graph) -> None:
    cache = ColumnCache(bytes_max=1 << 20, uses_min=2)
    entry = graph.snapshot().entry("node:N")
    some = np.array([5, 6], np.int64)
    for is_cached in (False, True, True):
        found = reader(graph, cache).fetch("node:N", some, ["i"])
        assert found["i"].to_pylist() == [1, 2]
        assert (cache.column(entry, "i") is not None) is is_cached
    assert cache.codes(entry, "i") is not None
    assert cache.column(entry, "key") is None


def test_what_a_query_reads_as_a_whole_is_cached(graph: Graph) -> None:
    cache = ColumnCache(bytes_max=1 << 20)
    reader(graph, cache).whole("node:N", ["i", "tags"])
    entry = graph.snapshot().entry("node:N")
    assert cache.column(entry, "i") is not None
    assert cache.column(entry, "tags") is None, "lists are not cached"


def test_nothing_is_cached_without_memory(graph: Graph) -> None:
    cache = ColumnCache(bytes_max=0, uses_min=1)
    some = np.array([5, 6], np.int64)
    for _ in range(3):
        assert reader(graph, cache).fetch("node:N", some, ["i"])["i"].to_pylist() == [1, 2]
    assert cache.nbytes == 0


def test_memory_stays_within_its_bound(graph: Graph) -> None:
    cache = ColumnCache(bytes_max=2_000, uses_min=1)
    reader(graph, cache).whole("node:N", ["i"])
    reader(graph, cache).whole("node:N", ["key"])
    assert 0 < cache.nbytes <= 2_000


def test_a_write_begins_a_new_version(graph: Graph) -> None:
    before = [graph.query(TEXT).json_rows() for _ in range(3)]
    assert before[0] == before[1] == before[2]
    assert {"n.i": None, "n": 1} in before[0]
    graph.mutate('query up() { update N set { i: 1 } where key = "n3" }')
    after = graph.query(TEXT).json_rows()
    assert {"n.i": 1, "n": 11} in after
    assert all(row["n.i"] is not None for row in after)


def test_versions_that_are_no_longer_read_leave_memory(graph: Graph) -> None:
    cache = ColumnCache(bytes_max=1 << 30, uses_min=1)
    entries = []
    for number in range(20):
        graph.mutate(f'query add() {{ insert N {{ key: "new{number}", i: 1 }} }}')
        entries.append(graph.snapshot().entry("node:N"))
        tables = reader(graph, cache)
        assert tables.find_text("node:N", "key", f"new{number}") is not None
        tables.whole("node:N", ["i"])
        assert cache.codes(entries[-1], "i") is not None
    for cached in (cache.row_positions, lambda entry: cache.column(entry, "i")):
        kept = [entry for entry in entries if cached(entry) is not None]
        assert kept == entries[-RECENT_VERSIONS_MAX:]


def test_the_columns_of_other_types_and_branches_stay_in_memory(graph: Graph) -> None:
    cache = ColumnCache(bytes_max=1 << 30, uses_min=1)
    graph.branches.create("draft")
    main = graph.snapshot().entry("node:N")
    reader(graph, cache).whole("node:N", ["i"])
    for number in range(4):
        graph.mutate(f'query add() {{ insert N {{ key: "new{number}" }} }}', branch="draft")
        snapshot = graph.snapshot_of(ReadTarget.branch("draft"))
        TableReader(snapshot, Guard(NO_LIMITS, SystemClock()), cache).whole("node:N", ["i"])
    assert cache.column(main, "i") is not None


def test_the_environment_sets_the_memory() -> None:
    assert column_memory({}) == MEMORY_MIB_DEFAULT << 20
    assert column_memory({MEMORY_MIB: " 3 "}) == 3 << 20
    assert column_memory({MEMORY_MIB: "0"}) == 0
    with pytest.raises(ReadMemoryError, match="whole number of MiB"):
        column_memory({MEMORY_MIB: "-1"})


# -- layers ----------------------------------------------------------------------------------------


def test_rows_are_found_again_for_the_same_version_only() -> None:
    found, asked = FoundRows(), np.array([5], np.int64)
    for first in range(6):
        # Each of these may lie in memory where one before it was.
        place = found.of(RowPositions(np.arange(first, first + 8)), None, asked)
        assert place is not None
        assert place.base.tolist() == [5 - first]


def test_a_column_may_be_read_while_the_next_layer_is_made() -> None:
    states = [TableState(DatasetVersion("nodes/n", None, version), ()) for version in (1, 2, 3)]
    first = TableDelta(states[0], states[1], np.array([], np.uint64), np.array([7], np.uint64), ())
    next_one = TableDelta(
        states[1], states[2], np.array([], np.uint64), np.array([8], np.uint64), ()
    )

    def read(name: str) -> pa.Array:
        return pa.array([name])

    layer = Layer.of(first, read)
    layer.column("a", read)

    def read_with_another_thread(name: str) -> pa.Array:
        layer.column("b", read)
        return read(name)

    made = layer.then(next_one, read_with_another_thread)
    assert made.column("a", read).to_pylist() == ["a", "a"]
    assert layer.column("b", read).to_pylist() == ["b"]


def test_columns_of_layers_are_counted(graph: Graph) -> None:
    cache = ColumnCache(bytes_max=1 << 22)
    reader(graph, cache).whole("node:N", ["i", "key"])
    graph.mutate("query w($k: String) { insert N { key: $k, i: 1 } }", "w", {"k": "x" * 20_000})
    some = np.array([5], np.int64)
    reader(graph, cache).fetch("node:N", some, ["i"])
    before = cache.nbytes
    assert reader(graph, cache).fetch("node:N", some, ["key"])["key"].to_pylist() == ["n5"]
    assert cache.nbytes >= before + 20_000
