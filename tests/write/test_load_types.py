"""A load of many types needs the memory of one of them at a time."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from omnigraph.graph import Graph
from omnigraph.write.load import memory
from omnigraph.write.load.check.scope import LoadScope
from omnigraph.write.load.rows import row_parts
from omnigraph.write.load.rows.row_parts import FragmentStream
from omnigraph.write.load.rows.spool import SpoolBudget

TYPES, ROWS = 9, 3_000
SCHEMA = "\n".join(f"node N{i} {{ k: String @key  text: String }}" for i in range(TYPES))


def table(number: int, rows: int = ROWS) -> pa.Table:
    numbers = np.arange(rows)
    return pa.table(
        {
            "k": pa.array([f"{number}-{row}" for row in numbers]),
            "text": pa.array([f"text {row} of {number}" for row in numbers]),
        }
    )


def mixed_records() -> list[dict[str, object]]:
    tables = {f"N{number}": table(number).to_pylist() for number in range(TYPES)}
    return [
        {"type": name, "data": rows[row]} for row in range(ROWS) for name, rows in tables.items()
    ]


@pytest.fixture
def writers(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many tables were being written when each further one began."""
    monkeypatch.setattr(row_parts, "_STREAM_BYTES_MIN", 1 << 10)
    running: list[int] = []
    start = FragmentStream.__init__

    def counted(self: FragmentStream, *arguments: object) -> None:
        start(self, *arguments)  # type: ignore[arg-type]  # passed on as they are
        running.append(sum(thread.name == "omnigraph-load" for thread in threading.enumerate()))

    monkeypatch.setattr(FragmentStream, "__init__", counted)
    return running


def stored(graph: Graph) -> dict[str, list[str]]:
    snapshot = graph.snapshot()
    return {
        f"N{number}": snapshot.open(f"node:N{number}").scan().read_all()["text"].to_pylist()
        for number in range(TYPES)
    }


EXPECTED = {f"N{number}": table(number)["text"].to_pylist() for number in range(TYPES)}


def test_tables_are_written_one_after_another(tmp_path: Path, writers: list[int]) -> None:
    graph = Graph.init(str(tmp_path / "g"), SCHEMA)
    graph.load({f"N{number}": table(number) for number in range(TYPES)}, mode="append")
    assert writers == [1] * TYPES
    assert stored(graph) == EXPECTED


def test_few_tables_are_written_at_the_same_time_where_records_are_mixed(
    tmp_path: Path, writers: list[int]
) -> None:
    graph = Graph.init(str(tmp_path / "g"), SCHEMA)
    result = graph.load(mixed_records(), mode="append")
    assert writers == list(range(1, row_parts.STREAMS_MAX + 1))
    assert result.inserted == TYPES * ROWS
    assert stored(graph) == EXPECTED


def test_rows_that_wait_for_a_writer_are_spooled_when_all_types_have_many(
    tmp_path: Path, writers: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_parts, "_STREAM_BYTES_MIN", 1 << 30)
    monkeypatch.setattr(row_parts, "_WAITING_BYTES_MAX", 1 << 10)
    graph = Graph.init(str(tmp_path / "g"), SCHEMA)
    graph.load(mixed_records(), mode="append")
    assert not writers
    assert stored(graph) == EXPECTED


def test_two_names_of_one_type_are_one_table(tmp_path: Path, writers: list[int]) -> None:
    graph = Graph.init(str(tmp_path / "g"), "node P { k: String @key }\nedge Knows: P -> P")
    nodes = pa.table({"k": ["a", "b"]})
    edges = pa.table({"src": ["a"] * ROWS, "dst": ["b"] * ROWS})
    result = graph.load_tables(
        nodes={"P": nodes}, edges={"Knows": edges, "knows": edges}, mode="append"
    )
    assert result.edge_counts["Knows"].inserted == 2 * ROWS
    assert len(writers) == 1


def test_lookups_of_nodes_share_the_memory_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three types of 3,000 nodes, and room for an index over 4,000."""
    schema = "\n".join(
        [f"node N{i} {{ k: String @key  text: String }}" for i in range(3)]
        + [f"edge E{i}{j}: N{i} -> N{j}" for i in range(3) for j in range(3)]
    )
    kept: list[int] = []
    look_up = LoadScope.node_lookup

    def counted(self: LoadScope, nodes: object) -> object:
        found = look_up(self, nodes)  # type: ignore[arg-type]  # passed on as it is
        lookups = (loaded._lookup for loaded in self.types.values())
        kept.append(sum(lookup is not None for lookup in lookups))
        return found

    monkeypatch.setattr(LoadScope, "node_lookup", counted)
    monkeypatch.setattr(
        "omnigraph.write.load.loader.SpoolBudget", lambda _: SpoolBudget(4_000 * 32)
    )
    graph = Graph.init(str(tmp_path / "g"), schema)
    edges = {
        f"E{i}{j}": pa.table({"src": [f"{i}-1"] * 10, "dst": [f"{j}-2"] * 10})
        for i in range(3)
        for j in range(3)
    }
    nodes = {f"N{number}": table(number) for number in range(3)}
    result = graph.load_tables(nodes=nodes, edges=edges, mode="append")
    assert result.inserted == 3 * ROWS + 90
    assert kept == [1] * 18


class CLibrary:
    """Writes down what it is asked."""

    def __init__(self) -> None:
        self.limits: list[int] = []

    def mallopt(self, option: int, value: int) -> int:
        if option == memory._MMAP_THRESHOLD:
            self.limits.append(value)
        return 1

    def malloc_trim(self, pad: int) -> int:
        return pad


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes from which blocks have had mappings of their own."""
    for name in memory._SETTINGS:
        monkeypatch.delenv(name, raising=False)
    library = CLibrary()
    monkeypatch.setattr(memory, "_library", lambda: library)
    return library.limits


def test_the_last_of_several_large_loads_raises_the_limits_again(limits: list[int]) -> None:
    with SpoolBudget(0) as one, SpoolBudget(0) as other:
        one.begin_stream()
        other.new_file()
        assert limits == [memory._LOW_BYTES]
    assert limits == [memory._LOW_BYTES, memory._HIGH_BYTES]


def test_limits_of_the_environment_stay(limits: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLOC_MMAP_THRESHOLD_", "131072")
    with SpoolBudget(0) as budget:
        budget.begin_stream()
    assert limits == []


def test_a_small_load_sets_no_limits(tmp_path: Path, limits: list[int]) -> None:
    graph = Graph.init(str(tmp_path / "g"), SCHEMA)
    graph.load({"N0": table(0, 10)}, mode="append")
    assert limits == []
