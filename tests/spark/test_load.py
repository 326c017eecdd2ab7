"""Bulk loads on a real Spark session: every kind of input, cancelling, dying, and racing."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from omnigraph.graph import Graph, Snapshot
from omnigraph.spark.load.loaded_rows import SparkRows
from omnigraph.store.records import ScanRequest
from omnigraph.write.load.formats.files import InputUnreadableError
from omnigraph.write.load.options import LoadOptionsError
from omnigraph.write.load.stage import StagedTable
from omnigraph.write.rules.violations import KeyConflictError, ValidationError
from support.loads import graph_lines

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

SCHEMA = """\
node Person { name: String @key  age: I32?  @range(age, 0..150) }
edge Knows: Person -> Person { since: I32? }
"""


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with Graph.init(str(tmp_path / "graph"), SCHEMA, durability="process") as made:
        yield made


def people(*names: str, age: int = 1) -> pa.Table:
    return pa.table({"name": list(names), "age": pa.array([age] * len(names), pa.int32())})


def knows(*pairs: str) -> pa.Table:
    ends = [pair.split() for pair in pairs]
    return pa.table({"src": [end[0] for end in ends], "dst": [end[1] for end in ends]})


def parquet(path: Path, table: pa.Table) -> str:
    pq.write_table(table, path, row_group_size=2)
    return str(path)


def lines(path: Path, *records: object) -> Path:
    path.write_text("\n".join(json.dumps(record) for record in records) + "\n")
    return path


def row_ids(graph: Graph, key: str) -> dict[str, int]:
    request = ScanRequest(columns=("id",), with_row_id=True)
    rows = graph.snapshot().open(key).scan(request).read_all()
    return dict(zip(rows["id"].to_pylist(), rows["_rowid"].to_pylist(), strict=True))


def staging(graph: Graph) -> list[Path]:
    return [path for path in (Path(graph.uri) / "__staging").rglob("*") if path.is_file()]


def test_every_form_of_input_is_one_commit(
    graph: Graph, spark: SparkSession, tmp_path: Path
) -> None:
    ann = spark.createDataFrame([("ann", 30)], "name string, age int")
    result = graph.load({"Person": ann}, mode="append")
    assert (result.engine, result.inserted) == ("spark", 1)
    assert result.to_json()["spark_app_id"] == spark.sparkContext.applicationId
    graph.load(
        {
            "Person": parquet(tmp_path / "p.parquet", people("bob", "cas", "dan")),
            "Knows": knows("ann bob", "bob dan"),
        },
        mode="append",
        engine="spark",
    )
    csv = tmp_path / "more.csv"
    csv.write_text("who,years\neve,7\nfay,8\n")
    source = {
        "format": "csv",
        "path": str(csv),
        "options": {"header": "true"},
        "map": {"name": "upper(who)", "age": "cast(years AS int) + 1"},
    }
    graph.load({"Person": source}, mode="append")
    records = lines(
        tmp_path / "all.jsonl",
        {"edge": "Knows", "from": "gus", "to": "EVE"},
        {"type": "Person", "data": {"name": "gus"}},
    )
    graph.load(str(tmp_path / "*.jsonl"), mode="append", engine="spark")
    assert records.exists()
    assert graph_lines(graph) == [
        "Knows * ann->bob {}",
        "Knows * bob->dan {}",
        "Knows * gus->EVE {}",
        'Person EVE {"age": 8, "name": "EVE"}',
        'Person FAY {"age": 9, "name": "FAY"}',
        'Person ann {"age": 30, "name": "ann"}',
        'Person bob {"age": 1, "name": "bob"}',
        'Person cas {"age": 1, "name": "cas"}',
        'Person dan {"age": 1, "name": "dan"}',
        'Person gus {"name": "gus"}',
    ]
    assert len(graph.list_commits()) == 5
    assert staging(graph) == []


@pytest.mark.parametrize("mode", ["append", "merge", "overwrite"])
def test_a_source_is_read_once_and_so_cannot_be_checked_on_other_rows_than_are_written(
    graph: Graph, spark: SparkSession, tmp_path: Path, mode: str
) -> None:
    graph.load({"Person": people("p0", "p1")}, mode="append", engine="local")
    marks = tmp_path / "marks"
    marks.mkdir()

    def changing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # Every reading gives other names; each leaves a mark.
        for batch in batches:
            first = batch.column(0)[0].as_py()
            readings = len([*marks.glob(f"{first}-*")])
            (marks / f"{first}-{readings}").touch()
            names = [f"q{n}-{readings}" for n in batch.column(0).to_pylist()]
            yield pa.record_batch({"name": pa.array(names)})

    own = spark.range(0, 40, 1, 4).mapInArrow(changing, "name string")
    ends = spark.range(0, 40, 1, 4).selectExpr(
        "concat('q', id, '-0') AS src", "concat('q', 39 - id, '-0') AS dst"
    )
    assert graph.load({"Person": own, "Knows": ends}, mode=mode).inserted == 80
    assert sorted(mark.name for mark in marks.iterdir()) == ["0-0", "10-0", "20-0", "30-0"]


def test_the_compatible_reader_runs_in_tasks(
    graph: Graph, spark: SparkSession, tmp_path: Path
) -> None:
    first, second = tmp_path / "1.json", tmp_path / "2.json"
    first.write_text('{"type": "Person", "x": 1,\n "data": {"name": "ann", "age": "?"}}')
    second.write_text(
        '{"edge": "KNOWS", "from": "ann", "to": "bob"} {"type": "Person",\n"data": {"name": "bob"}}'
    )
    result = graph.load(
        [first, second], mode="append", engine="spark", reader="compatible", spark=spark
    )
    assert result.engine == "spark"
    assert [line.split()[:3] for line in graph_lines(graph)] == [
        ["Knows", "*", "ann->bob"],
        ["Person", "ann", '{"name":'],
        ["Person", "bob", '{"name":'],
    ]
    second.write_text('{"type": "Person", "data": {"name": "cas"}} {"edge": "Knows", "from": 1}')
    with pytest.raises(ValidationError, match="edge missing 'from'") as caught:
        graph.load(second, mode="append", engine="spark", reader="compatible", spark=spark)
    assert (caught.value.place, caught.value.violations[0].position) == ("record", 2)


def test_a_merge_keeps_row_ids_and_leaves_equal_rows_alone(
    graph: Graph, spark: SparkSession
) -> None:
    graph.load({"Person": people("ann", "bob", "cas")}, mode="append", engine="local")
    before = row_ids(graph, "node:Person")
    rows = [("ann", 1, 1), ("bob", 5, 1), ("dan", 9, 1), ("bob", 6, 2)]
    frame = spark.createDataFrame(rows, "name string, age int, at int").repartition(3)
    changed = frame.select("name", "age", "at")
    with pytest.raises(ValidationError, match="unknown input field 'at'"):
        graph.load({"Person": changed}, mode="merge")
    source = {"Person": frame.select("name", "age")}
    with pytest.raises(ValidationError, match="held by 'bob' and 'bob'"):
        graph.load(source, mode="merge")
    with pytest.raises(LoadOptionsError, match="needs `order_by`"):
        graph.load(source, mode="merge", on_duplicate="last")
    result = graph.load(source, mode="merge", on_duplicate="last", order_by=["age"])
    assert (result.inserted, result.updated, result.unchanged) == (1, 1, 1)
    after = row_ids(graph, "node:Person")
    assert {name: after[name] for name in before} == before
    assert 'Person bob {"age": 6, "name": "bob"}' in graph_lines(graph)


def test_bad_rows_are_told_with_file_and_record_or_set_aside(
    graph: Graph, spark: SparkSession, tmp_path: Path
) -> None:
    first = lines(
        tmp_path / "1.jsonl",
        {"type": "Person", "data": {"name": "ann"}},
        {"edge": "Knows", "from": "ann", "to": "bob"},
        {"edge": "Knows", "from": "ann", "to": "zoe"},
    )
    second = tmp_path / "2.jsonl"
    second.write_text('{"type": "Person", "data": {"name": "bob", "age": 200}}\n\n{"type": \n')
    with pytest.raises(ValidationError) as caught:
        graph.load([first, second], mode="append", engine="spark", spark=spark)
    found = {(one.source, one.position, one.rule) for one in caught.value.violations}
    assert found == {
        (str(second), 1, "range"),
        (str(second), 3, "json"),
        (str(first), 2, "endpoint"),
        (str(first), 3, "endpoint"),
    }
    assert "at line 3" in str([one.message for one in caught.value.violations])
    assert graph_lines(graph) == []
    aside = tmp_path / "aside"
    result = graph.load(
        [first, second],
        mode="append",
        engine="spark",
        spark=spark,
        on_error="quarantine",
        quarantine=aside,
    )
    assert (result.inserted, result.rejected) == (1, 4)
    assert graph_lines(graph) == ['Person ann {"name": "ann"}']
    texts = [path.read_text() for path in aside.iterdir()]
    told = [json.loads(line) for text in texts for line in text.splitlines()]
    assert {(one["source"], one["position"]) for one in told} == {
        (source, position) for source, position, _ in found
    }


def test_a_source_that_is_not_there_or_no_parquet_leaves_nothing(
    graph: Graph, spark: SparkSession, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(b"PAR1 is not all it takes")
    for path in (tmp_path / "nothing.parquet", broken):
        with pytest.raises(InputUnreadableError, match=path.name):
            graph.load({"Person": path}, mode="append", engine="spark", spark=spark)
    assert graph_lines(graph) == []
    assert staging(graph) == []


def test_an_overwrite_replaces_the_named_types_only(graph: Graph, spark: SparkSession) -> None:
    tables = {"Person": people("ann", "bob"), "Knows": knows("ann bob")}
    graph.load(tables, mode="append", engine="local")
    with pytest.raises(ValidationError, match="dst 'bob' not found in Person"):
        graph.load({"Person": people("ann")}, mode="overwrite", engine="spark", spark=spark)
    result = graph.load(
        {"Person": people("ann", "cas"), "Knows": knows("cas ann")},
        mode="overwrite",
        engine="spark",
        spark=spark,
    )
    assert result.inserted == 3
    assert graph_lines(graph)[0] == "Knows * cas->ann {}"


def test_many_small_partitions_leave_few_fragments(graph: Graph, spark: SparkSession) -> None:
    frame = spark.range(200).selectExpr("concat('p', id) AS name").repartition(20)
    graph.load({"Person": frame}, mode="append")
    handle = graph.snapshot().open("node:Person")
    assert (handle.count(), len(handle.fragments())) == (200, 1)


def test_the_input_is_read_once(graph: Graph, spark: SparkSession, tmp_path: Path) -> None:
    graph.load({"Person": people("p1", age=3)}, mode="append", engine="local")
    seen = tmp_path / "seen"
    seen.mkdir()

    def counted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # Another evaluation would have other rows, and would leave another file.
        lock = len(list(seen.iterdir()))
        for number, batch in enumerate(batches):
            (seen / f"{lock}-{number}-{os.getpid()}").touch()
            names = pa.array([f"p{one + lock * 1000}" for one in batch.column(0).to_pylist()])
            yield pa.record_batch({"name": names, "age": pa.array([4] * len(names), pa.int32())})

    frame = spark.range(0, 4, 1, 1).mapInArrow(counted, "name string, age int")
    result = graph.load({"Person": frame}, mode="merge")
    assert (result.inserted, result.updated) == (3, 1)
    assert len(list(seen.iterdir())) == 1


def test_what_a_dead_attempt_wrote_is_reclaimed_and_doubles_nothing(
    graph: Graph, spark: SparkSession, tmp_path: Path
) -> None:
    first = tmp_path / "first"

    def fails_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.record_batch(
                {"name": pa.array([f"p{n}" for n in batch.column(0).to_pylist()])}
            )
        if not first.exists():
            first.touch()
            raise RuntimeError("the task dies when all of its rows are on their way")

    frame = spark.range(0, 100, 1, 1).mapInArrow(fails_once, "name string")
    with pytest.raises(Exception, match="the task dies"):
        graph.load({"Person": frame}, mode="append")
    assert graph_lines(graph) == []
    graph.load({"Person": frame}, mode="append")
    assert len(graph_lines(graph)) == 100
    graph.cleanup(keep_versions=1, orphan_age_s=0, confirm=True)
    files = list((Path(graph.uri) / "nodes").rglob("data/*.lance"))
    assert len(files) == 1


def test_a_load_that_loses_a_race_keeps_what_it_staged(
    graph: Graph, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph.load({"Person": people("ann")}, mode="append", engine="local")
    stage = SparkRows.stage
    staged: list[list[str]] = []

    def overtaken(self: SparkRows, snapshot: Snapshot) -> dict[str, StagedTable]:
        found = stage(self, snapshot)
        if not staged:
            graph.load({"Person": people("zoe")}, mode="append", engine="local")
        (write,) = [one.write for one in found.values()]
        assert write is not None
        staged.append([file.path for file in write.staged[0].files])
        return found

    monkeypatch.setattr(SparkRows, "stage", overtaken)
    frame = spark.createDataFrame([("bob",), ("cas",)], "name string")
    graph.load({"Person": frame}, mode="append")
    assert len(staged) == 2
    assert staged[0] == staged[1]
    assert len(graph_lines(graph)) == 4
    with pytest.raises(KeyConflictError, match="zoe"):
        graph.load({"Person": spark.createDataFrame([("zoe",)], "name string")}, mode="append")


def test_an_interrupted_load_is_cancelled_and_leaves_the_graph_as_it_was(
    graph: Graph, spark: SparkSession, tmp_path: Path
) -> None:
    begun = tmp_path / "begun"

    def endless(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            begun.touch()
            time.sleep(3600)
            yield pa.record_batch({"name": pa.array([str(n) for n in batch.column(0).to_pylist()])})

    def interrupt() -> None:
        while not begun.exists():
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    frame = spark.range(0, 2, 1, 2).mapInArrow(endless, "name string")
    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        graph.load({"Person": frame}, mode="append")
    assert graph_lines(graph) == []
    assert staging(graph) == []
    # Spark's own account of its stages follows a little later.
    tracker = spark.sparkContext.statusTracker()
    while tracker.getActiveStageIds():
        time.sleep(0.1)
