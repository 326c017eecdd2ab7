"""Every format on Spark: tasks read files as this process does, and say the same of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq
import pytest
from pyarrow import orc
from pyspark.sql import SparkSession

from omnigraph.graph import Graph
from omnigraph.spark.load.workers import Tuning
from omnigraph.write.load.formats.kinds import InputFormatError
from omnigraph.write.rules.violations import ValidationError
from omnigraph.write.stage.delta import WriteMode
from support.inline_jobs import inline_load
from support.loads import graph_lines

SCHEMA = """\
node Person { name: String @key  age: I32? @default(5)  tags: [String]?  born: Date? }
edge Knows: Person -> Person { since: I32? }
"""
ROWS = [
    {
        "name": f"p{n}\n,{n}",
        "age": n if n % 3 else None,
        "tags": ["a", str(n)],
        "born": "2020-01-02",
    }
    for n in range(30)
]
TABLE = pa.Table.from_pylist(ROWS)
IN_TASKS = Tuning(driver_rows_max=0)
OVERWRITE = WriteMode.OVERWRITE


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    root = tmp_path_factory.mktemp("formats") / "graph"
    with Graph.init(str(root), SCHEMA, durability="process") as made:
        yield made


def write_json(path: Path) -> None:
    path.write_text(json.dumps(ROWS, indent=1))


def write_lines(path: Path) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))


def write_csv(path: Path) -> None:
    texts = pa.array([json.dumps(row["tags"]) for row in ROWS])
    arrow_csv.write_csv(TABLE.set_column(TABLE.schema.get_field_index("tags"), "tags", texts), path)


def write_packed(path: Path) -> None:
    write_csv(path.with_suffix(""))
    with pa.CompressedOutputStream(str(path), "gzip") as out:
        out.write(path.with_suffix("").read_bytes())
    path.with_suffix("").unlink()


def write_arrow(path: Path) -> None:
    with pa.ipc.new_file(path, TABLE.schema) as writer:
        writer.write_table(TABLE)


WRITERS: dict[str, Callable[[Path], None]] = {
    "a.jsonl": write_lines,
    "a.json": write_json,
    "a.csv": write_csv,
    "a.csv.gz": write_packed,
    "a.parquet": lambda path: pq.write_table(TABLE, path, row_group_size=7),
    "a.arrow": write_arrow,
    "a.orc": lambda path: orc.write_table(TABLE, path),
}


@pytest.mark.parametrize("name", list(WRITERS))
def test_tasks_read_every_format_as_this_process_does(
    graph: Graph, tmp_path: Path, name: str
) -> None:
    graph.load({"Person": TABLE}, mode="overwrite", engine="local")
    expected = graph_lines(graph)
    WRITERS[name](tmp_path / name)
    graph.load({"Person": TABLE.slice(0, 1)}, mode="overwrite", engine="local")
    source = {"path": str(tmp_path / name)}
    inline_load(graph, {"Person": source}, mode=OVERWRITE, tuning=IN_TASKS)
    assert graph_lines(graph) == expected
    (tmp_path / name).rename(tmp_path / "unnamed")
    stated = {"path": str(tmp_path / "unnamed"), "format": name.split(".")[1]}
    inline_load(graph, {"Person": stated}, mode=OVERWRITE, tuning=IN_TASKS)
    assert graph_lines(graph) == expected


def both(graph: Graph, data: Any) -> list[list[str]]:
    """Return what each engine leaves in the graph, or says."""
    found = []
    for engine in ("local", "spark"):
        try:
            if engine == "local":
                graph.load(data, mode="overwrite", engine="local")
            else:
                inline_load(graph, data, mode=OVERWRITE, tuning=IN_TASKS)
            found.append(graph_lines(graph))
        except ValidationError as error:
            found.append(list(error.lines))
        except InputFormatError as error:
            found.append([str(error)])
    return found


def test_both_engines_say_the_same_about_files(graph: Graph, tmp_path: Path) -> None:
    bad = tmp_path / "bad.csv"
    bad.write_text('name,age\n"a\nb",1\nc\nd,x\n')
    wrong = tmp_path / "wrong.csv"
    wrong.write_text("name,agee\na,1\n")
    parts = tmp_path / "parts"
    for age in (1, 2):
        (parts / f"age={age}").mkdir(parents=True)
        (parts / f"age={age}" / "a.csv").write_text(f"who,junk\np{age},0\n")
        pq.write_table(pa.table({"who": [f"q{age}"]}), parts / f"age={age}" / "a.parquet")
    absent = tmp_path / "absent.jsonl"
    absent.write_text('{"name": "a"}\n{"name": "b", "age": null}\n')
    records = tmp_path / "records.json"
    records.write_text(
        '[{"type": "Person", "data": {"name": "a"}}, {"type": "Person", "data": {}}]'
    )
    table = tmp_path / "table.parquet"
    pq.write_table(TABLE, table)
    lines = {
        "bad": both(graph, {"Person": str(bad)}),
        "wrong": both(graph, {"Person": str(wrong)}),
        "parts": both(graph, {"Person": {"path": str(parts), "map": {"name": "who"}}}),
        "absent": both(graph, {"Person": str(absent)}),
        "records": both(graph, records),
        "table": both(graph, table),
    }
    for name, (here, there) in lines.items():
        assert here == there, name
    assert lines["bad"][0] == [
        "line 4: Person: expected 2 cells, found 1",
        """line 5: Person: strict property 'age' expects Int32, got "x\"""",
    ]
    assert len(lines["parts"][0]) == 4
    assert lines["absent"][0] == ['Person a {"age": 5, "name": "a"}', 'Person b {"name": "b"}']
    assert lines["records"][0] == [
        "record 2: Person: non-nullable property 'name' has null or invalid values"
    ]
    assert lines["table"][0] == [f"{table} is Parquet, expected graph records"]


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_a_session_reads_csv_and_renamed_columns(
    graph: Graph, spark: SparkSession, tmp_path: Path
) -> None:
    write_csv(tmp_path / "a.csv")
    links = tmp_path / "links.csv"
    links.write_text('a,b,since\n"p0\n,0","p1\n,1",7\n')
    source = {"path": str(links), "map": {"src": "a", "dst": "b"}}
    data = {"Person": str(tmp_path / "a.csv"), "Knows": source}
    result = graph.load(data, mode="overwrite", engine="spark", spark=spark)
    assert (result.engine, result.engine_reason) == ("spark", "the caller asked for it")
    assert result.inserted == len(ROWS) + 1
