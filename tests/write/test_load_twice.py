"""A merge of what is stored already changes nothing, from every format and on both engines."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from omnigraph.graph import Graph, LoadResult
from omnigraph.spark.load.workers import Tuning
from omnigraph.write.stage.delta import WriteMode
from support.inline_jobs import inline_load

SCHEMA = """
node N { k: String @key  x: F64?  t: String?  d: Date?  l: [I32]?  s: String @default("-") }
edge Group: N -> N { x: F64?  t: String?  w: I32  @unique(src, dst) }
edge Plain: N -> N { x: F64?  t: String?  d: Date?  l: [I32]?  s: String @default("-") }
edge Keyed: N -> N { a: I32  x: F64?  t: String?  s: String @default("-")  @key(src, dst, a) }
"""
Rows = list[dict[str, Any]]
ROWS: dict[str, Rows] = {
    "N": [
        {"k": "a", "x": 0.1, "t": "", "d": "2024-02-29", "l": [1, 2], "s": "-"},
        {"k": "b", "x": -0.0, "t": 'é,"\n', "d": None, "l": [], "s": "+"},
        {"k": "c", "x": None, "t": None, "d": None, "l": None, "s": "-"},
    ],
    "Group": [
        {"src": "a", "dst": "b", "x": 0.1, "t": "", "w": 0},
        {"src": "b", "dst": "a", "x": None, "t": None, "w": 7},
    ],
    "Plain": [
        {"src": "a", "dst": "b", "x": 0.1, "t": "", "d": "2024-02-29", "l": [1], "s": "-"},
        {"src": "a", "dst": "b", "x": 0.1, "t": "", "d": "2024-02-29", "l": [1], "s": "-"},
        {"src": "a", "dst": "b", "x": None, "t": None, "d": None, "l": [], "s": "-"},
        {"src": "a", "dst": "b", "x": None, "t": None, "d": None, "l": None, "s": "+"},
    ],
    "Keyed": [
        {"src": "a", "dst": "b", "a": 0, "x": -0.0, "t": "", "s": "-"},
        {"src": "a", "dst": "b", "a": 1, "x": None, "t": None, "s": "+"},
    ],
}
COUNT = sum(map(len, ROWS.values()))
KINDS = {"x": pa.float64(), "d": pa.date32(), "l": pa.list_(pa.int32()), "w": pa.int32()}


def table(rows: Rows) -> pa.Table:
    columns = {}
    for name in rows[0]:
        kind = KINDS.get(name, pa.int32() if name == "a" else pa.utf8())
        values = [row[name] for row in rows]
        is_day = kind == pa.date32()
        columns[name] = pa.array(values, pa.utf8()).cast(kind) if is_day else pa.array(values, kind)
    return pa.table(columns)


def texts(rows: Rows) -> pa.Table:
    """The rows as CSV has them."""

    def cell(value: Any) -> str | None:
        return value if value is None or isinstance(value, str) else json.dumps(value)

    return pa.table({name: pa.array([cell(row[name]) for row in rows]) for name in rows[0]})


def partial(rows: Rows) -> Rows:
    """The same rows; those that can do without a member have none."""
    empty = {"x": None, "t": None, "d": None, "l": None, "s": "-"}
    return [
        {name: value for name, value in row.items() if name not in empty or value != empty[name]}
        for row in rows
    ]


def write_csv(path: Path, rows: Rows) -> Path:
    # An empty text is quoted, and nothing is null.
    arrow_csv.write_csv(texts(rows), path, arrow_csv.WriteOptions(quoting_style="needed"))
    return path


def write_lines(path: Path, rows: Rows) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def write_array(path: Path, rows: Rows) -> Path:
    path.write_text(json.dumps(rows, indent=1))
    return path


def write_arrow(path: Path, rows: Rows) -> Path:
    found = table(rows)
    with pa.ipc.new_file(path, found.schema) as writer:
        writer.write_table(found)
    return path


def write_parquet(path: Path, rows: Rows) -> Path:
    pq.write_table(table(rows), path, row_group_size=1)
    return path


def write_orc(path: Path, rows: Rows) -> Path:
    orc.write_table(table(rows), path)
    return path


Source = Callable[[Path, Rows], Any]
FILES: dict[str, Source] = {
    "lines": lambda at, rows: write_lines(at / "a.jsonl", rows),
    "lines that leave out": lambda at, rows: write_lines(at / "a.jsonl", partial(rows)),
    "array": lambda at, rows: write_array(at / "a.json", rows),
    "array that leaves out": lambda at, rows: write_array(at / "a.json", partial(rows)),
    "csv": lambda at, rows: write_csv(at / "a.csv", rows),
    "parquet": lambda at, rows: write_parquet(at / "a.parquet", rows),
    "arrow": lambda at, rows: write_arrow(at / "a.arrow", rows),
    "orc": lambda at, rows: write_orc(at / "a.orc", rows),
    "table": lambda _, rows: table(rows),
}
IN_MEMORY: dict[str, Source] = {
    "objects": lambda _, rows: rows,
    "objects that leave out": lambda _, rows: partial(rows),
    "pandas": lambda _, rows: table(rows).to_pandas(types_mapper=pd.ArrowDtype),
    "reader": lambda _, rows: table(rows).to_reader(),
}


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    root = tmp_path_factory.mktemp("twice") / "graph"
    with Graph.init(str(root), SCHEMA, durability="process", auto_optimize=False) as made:
        yield made


def merge(graph: Graph, source: Source, folder: Path, engine: str) -> LoadResult:
    data: dict[str, Any] = {}
    for name, rows in ROWS.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        data[name] = source(folder / name, rows)
    if engine == "local":
        return graph.load(data, mode="merge", engine="local")
    return inline_load(graph, data, mode=WriteMode.MERGE, tuning=Tuning(driver_rows_max=0))


CASES = [("local", name) for name in (*FILES, *IN_MEMORY)] + [("tasks", name) for name in FILES]


@pytest.mark.parametrize(("engine", "name"), CASES)
def test_a_second_merge_of_the_same_rows_changes_nothing(
    graph: Graph, tmp_path: Path, engine: str, name: str
) -> None:
    graph.load({type_name: [] for type_name in ROWS}, mode="overwrite")
    source = (FILES | IN_MEMORY)[name]
    assert merge(graph, source, tmp_path, engine).inserted == COUNT
    stored = sorted(graph.export_lines())
    again = merge(graph, source, tmp_path, engine)
    assert (again.inserted, again.updated, again.unchanged) == (0, 0, COUNT)
    assert again.commit is None
    # Nor does another format.
    other = merge(graph, FILES["table"], tmp_path / "other", "local")
    assert (other.unchanged, other.commit) == (COUNT, None)
    assert sorted(graph.export_lines()) == stored


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_a_merge_of_its_own_export_changes_nothing(graph: Graph, tmp_path: Path, form: str) -> None:
    graph.load({name: table(rows) for name, rows in ROWS.items()}, mode="overwrite")
    graph.export(tmp_path / "out", format=form)
    again = graph.load(tmp_path / "out", mode="merge")
    assert (again.unchanged, again.commit) == (COUNT, None)
