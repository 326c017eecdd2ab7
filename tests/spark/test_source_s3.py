"""The data source on an object store: reads, filters, writes, changes, maintenance, merges."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.pandas.types import from_arrow_schema

from omnigraph.graph import Graph
from omnigraph.spark.sink.table_sink import GraphWriter
from omnigraph.spark.source.data_source import OmnigraphSource
from support.inline_engine import take_everything
from support.loads import graph_lines
from support.places import Place, repository_of
from support.s3 import S3Server, serve_s3

SCHEMA = """
node Person { name: String @key  age: I32? @index }
edge Knows: Person -> Person
"""


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with serve_s3() as running:
        yield running


@pytest.fixture
def place(server: S3Server, tmp_path: Path) -> Place:
    return Place(f"s3://{server.bucket}/{tmp_path.name}/graph", server.options)


def filled(place: Place, rows: int = 6) -> Graph:
    graph = place.init(SCHEMA)
    for number in range(rows):
        record = {"type": "Person", "data": {"name": f"p{number}", "age": number}}
        graph.load(json.dumps(record).encode(), mode="append")
    return graph


def options(place: Place, **said: str) -> dict[str, str]:
    given = {f"storage.{name}": text for name, text in place.options.items()}
    return {"path": place.uri, **given, **said}


def read(place: Place, **said: str) -> list[dict[str, Any]]:
    made = OmnigraphSource(options(place, **said))
    reader = made.reader(made.schema())
    return [
        row
        for partition in reader.partitions()
        for batch in reader.read(partition)
        for row in batch.to_pylist()  # type: ignore[union-attr]  # ours are batches
    ]


def write(place: Place, table: pa.Table, **said: str) -> None:
    made = OmnigraphSource(options(place, **said)).writer(from_arrow_schema(table.schema), False)
    assert isinstance(made, GraphWriter)
    messages: list[WriterCommitMessage | None] = [
        made.write(iter(table.slice(start, 1).to_batches())) for start in range(table.num_rows)
    ]
    made.commit(messages)


def test_rows_are_read_and_a_filter_on_an_index_leaves_out_the_files_without_a_match(
    place: Place, server: S3Server
) -> None:
    graph = filled(place)
    graph.ensure_indices()
    # What is left to do in the background must not be counted.
    graph.close()
    assert sorted(row["name"] for row in read(place, node="Person")) == [
        f"p{number}" for number in range(6)
    ]
    with server.requests() as requests:
        (row,) = read(place, node="Person", filter="age = 4", columns="name")
    assert row == {"name": "p4"}
    paths = {one.path.partition("?")[0] for one in requests}
    data = [path for path in paths if "/nodes/" in path and "/data/" in path]
    assert len(data) == 1, "one of six files has the row"


def test_a_write_is_one_commit_and_leaves_nothing_beside_it(place: Place, server: S3Server) -> None:
    graph = place.init(SCHEMA)
    write(place, pa.table({"name": ["ann", "bob"], "age": [1, 2]}), node="Person")
    assert [line.split()[1] for line in graph_lines(place.open())] == ["ann", "bob"]
    changed = read(place, readChangeFeed="true", startingVersion="earliest", node="Person")
    assert sorted((row["name"], row["_change_type"]) for row in changed) == [
        ("ann", "insert"),
        ("bob", "insert"),
    ]
    assert [one.path for one in repository_of(graph).store.objects.list("__staging")] == []


def test_maintenance_and_merges_run_as_tasks(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = filled(place, rows=4)
    graph.branch_create("draft")
    fresh = {"type": "Person", "data": {"name": "new", "age": 9}}
    graph.load(json.dumps(fresh).encode(), mode="append", branch="draft")
    take_everything(monkeypatch)
    assert graph.optimize().engine == "spark"
    assert len(graph.snapshot().open("node:Person").fragments()) == 1
    assert graph.branch_merge("draft").engine == "spark"
    assert len(graph_lines(place.open())) == 5
    assert [one.path for one in repository_of(graph).store.objects.list("__staging")] == []


@pytest.mark.spark
def test_spark_reads_filters_and_writes(spark: SparkSession, place: Place) -> None:
    filled(place, rows=3)
    said = options(place)
    root = said.pop("path")
    frame = spark.read.format("omnigraph").options(**said, node="Person", filter="age >= 1")
    assert sorted(row.name for row in frame.load(root).collect()) == ["p1", "p2"]
    rows = spark.sql("SELECT 'ann' AS name, 40 AS age UNION ALL SELECT 'p1', 41")
    writer = rows.write.format("omnigraph").options(**said, node="Person", graphMode="merge")
    writer.mode("append").save(root)
    ages = {line.split()[1]: line for line in graph_lines(place.open())}
    assert '"age": 41' in ages["p1"]
    assert '"age": 40' in ages["ann"]
