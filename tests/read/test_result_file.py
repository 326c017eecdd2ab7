"""A result as a file: complete or absent, readable by others, moments with their time of day."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from omnigraph.graph import Graph

SCHEMA = "node Event { name: String @key  at: DateTime?  days: [DateTime]?  v: Vector(2)? }"
QUERY = """\
query all() {
    match { $e: Event }
    return { $e.name as name, $e.at as at, $e.days, $e.v, $e.name as name }
    order { name }
}
"""
MOMENT = datetime(2026, 1, 2, 3, 4, 5, 678_000, UTC)


@pytest.mark.parametrize("form", ["arrow", "parquet"])
def test_a_file_holds_what_the_answer_holds(
    tmp_path: Path, form: Literal["arrow", "parquet"]
) -> None:
    graph = Graph.init(tmp_path / "g.omni", SCHEMA, durability="process")
    graph.load(
        b'{"type": "Event", "data": {"name": "a", "at": "2026-01-02T03:04:05.678Z",'
        b' "days": ["2026-01-02T03:04:05.678Z"], "v": [1, 2]}}\n'
        b'{"type": "Event", "data": {"name": "b"}}',
        mode="append",
    )
    path = tmp_path / f"rows.{form}"
    path.write_text("an older file", encoding="utf-8")
    graph.query(QUERY).write(path, form)
    table = pq.read_table(path) if form == "parquet" else pa.ipc.open_file(path).read_all()
    assert table.to_pylist() == [
        {"name": "a", "at": MOMENT, "e.days": [MOMENT], "e.v": [1.0, 2.0], "name_2": "a"},
        {"name": "b", "at": None, "e.days": None, "e.v": None, "name_2": "b"},
    ]
    assert sorted(each.name for each in tmp_path.iterdir()) == ["g.omni", path.name]


def test_a_file_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    graph = Graph.init(tmp_path / "g.omni", SCHEMA, durability="process")
    with pytest.raises(FileNotFoundError):
        graph.query(QUERY).write(tmp_path / "no" / "rows.parquet", "parquet")
    assert [each.name for each in tmp_path.iterdir()] == ["g.omni"]
