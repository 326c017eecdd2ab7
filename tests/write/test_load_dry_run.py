"""A dry run says what a load would do, and writes nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from omnigraph.engine import EngineMissingError
from omnigraph.graph import Graph, OpenMode
from omnigraph.write.load.rows import row_parts as load_parts
from omnigraph.write.rules.violations import KeyConflictError, ValidationError
from support.places import Place, tree

SCHEMA = """
node Person { name: String @key  age: I32? }
edge Knows: Person -> Person
"""


@pytest.fixture
def graph(local_place: Place) -> Graph:
    graph = local_place.init(SCHEMA)
    graph.load(lines(person("a", 1), person("b", 2)), mode="append")
    return graph


def person(name: str, age: int) -> dict[str, object]:
    return {"type": "Person", "data": {"name": name, "age": age}}


def knows(source: str, target: str) -> dict[str, object]:
    return {"edge": "Knows", "from": source, "to": target}


def lines(*records: object) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def test_a_dry_run_counts_and_leaves_every_file_as_it_is(
    graph: Graph, local_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Rows that are loaded would be streamed to storage while they are read.
    monkeypatch.setattr(load_parts, "_STREAM_BYTES_MIN", 1)
    before = tree(Path(local_place.uri))
    records = lines(person("a", 1), person("b", 3), person("c", 4), knows("a", "c"))
    result = graph.load(records, mode="merge", dry_run=True)
    assert (result.inserted, result.updated, result.unchanged) == (2, 1, 1)
    assert (result.commit, result.bytes_written, result.is_dry_run) == (None, 0, True)
    assert result.to_json()["dry_run"] is True
    assert tree(Path(local_place.uri)) == before
    loaded = graph.load(records, mode="merge")
    assert (loaded.inserted, loaded.updated, loaded.unchanged) == (2, 1, 1)
    assert "dry_run" not in loaded.to_json()


def test_a_dry_run_fails_as_the_load_would(graph: Graph) -> None:
    with pytest.raises(ValidationError) as refused:
        graph.load(lines(knows("a", "nobody"), {"type": "Nope"}), mode="append", dry_run=True)
    assert refused.value.total == 2
    with pytest.raises(KeyConflictError):
        graph.load(lines(person("a", 1)), mode="append", dry_run=True)


def test_a_dry_run_writes_the_rows_that_would_be_left_out(graph: Graph, tmp_path: Path) -> None:
    folder = tmp_path / "left-out"
    result = graph.load(
        lines(knows("a", "nobody"), person("c", 1)),
        mode="append",
        on_error="quarantine",
        quarantine=folder,
        dry_run=True,
    )
    assert (result.inserted, result.rejected) == (1, 1)
    assert (folder / "edge-Knows.jsonl").exists()


def test_a_dry_run_makes_no_branch(graph: Graph) -> None:
    result = graph.load(
        lines(person("c", 1)), mode="append", branch="new", from_branch="main", dry_run=True
    )
    assert (result.branch, result.base_branch, result.branch_created) == ("new", "main", False)
    assert graph.branch_list() == ["main"]


def test_whoever_may_only_read_may_try_a_load(graph: Graph, local_place: Place) -> None:
    reader = local_place.open(mode=OpenMode.READ_ONLY)
    assert reader.load(lines(person("c", 1)), mode="append", dry_run=True).inserted == 1


def test_spark_does_no_dry_runs(graph: Graph, tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    path.write_bytes(lines(person("c", 1)))
    with pytest.raises(EngineMissingError, match="dry run"):
        graph.load(path, mode="append", dry_run=True, engine="spark")
