"""Reading a graph from Spark."""

from __future__ import annotations

import datetime
import json
import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from omnigraph import Graph, ReadTarget
from omnigraph.spark.source.data_source import OmnigraphSource
from omnigraph.spark.source.options import SourceOptionError, read_options
from omnigraph.spark.source.scan import FragmentsPartition, TypeReader
from omnigraph.spark.source.tables import (
    BATCH_BYTES,
    BATCH_ROWS_MAX,
    BATCH_ROWS_MIN,
    grouped_by_rows,
    rows_per_batch,
)
from omnigraph.store import open_store
from omnigraph.store.records import FragmentInfo

SCHEMA = """
node Person {
    name: String @key
    age: I32? @index
    total: U64?
    small: U32?
    share: F32?
    born: Date?
    seen: DateTime?
    active: Bool?
    kind: enum(cat, dog)?
    tags: [String]?
    place: Vector(3)?
    photo: Blob?
}
edge Knows: Person -> Person { since: Date? }
"""

ANN = {
    "name": "ann",
    "age": 30,
    "total": 2**64 - 1,
    "small": 2**32 - 1,
    "share": 0.5,
    "born": "2000-01-02",
    "seen": "2020-01-01T00:00:00.123Z",
    "active": True,
    "kind": "cat",
    "tags": ["x", "y"],
    "place": [1.0, 2.0, 3.0],
    "photo": "base64:AAEC",
}


def lines(*records: dict[str, object]) -> bytes:
    return "\n".join(json.dumps(record) for record in records).encode()


def person(**data: object) -> dict[str, object]:
    return {"type": "Person", "data": data}


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    root = str(tmp_path_factory.mktemp("graphs") / "people.omni")
    with Graph.init(root, SCHEMA, durability="process", auto_optimize=False) as graph:
        knows = {"edge": "Knows", "from": "ann", "to": "bob", "data": {"since": "2021-03-04"}}
        graph.load(lines({"type": "Person", "data": ANN}, person(name="bob"), knows), mode="append")
        graph.tag_create("first")
        graph.branch_create("draft")
        for number in range(3):
            fresh = [person(name=f"p{number}-{row}", age=row) for row in range(4)]
            graph.load(lines(*fresh), mode="append")
    return root


Read = Callable[..., DataFrame]


@pytest.fixture
def read(spark: SparkSession, uri: str) -> Read:
    return lambda **options: spark.read.format("omnigraph").options(**options).load(uri)


# -- rows -----------------------------------------------------------------------------------------


@pytest.mark.spark
def test_a_node_type_is_a_frame_of_its_properties_without_blobs(read: Read) -> None:
    people = read(node="Person", versionAsOf="first", filter="name = 'ann'")
    assert "photo" not in people.columns
    (row,) = people.toArrow().to_pylist()
    assert row["total"] == Decimal(2**64 - 1)
    assert row["small"] == 2**32 - 1
    assert row["born"] == datetime.date(2000, 1, 2)
    assert row["seen"] == datetime.datetime(2020, 1, 1, 0, 0, 0, 123_000, datetime.UTC)
    assert (row["kind"], row["tags"], row["place"]) == ("cat", ["x", "y"], [1.0, 2.0, 3.0])


@pytest.mark.spark
def test_columns_come_in_the_order_in_which_they_are_named_and_blobs_only_then(read: Read) -> None:
    people = read(node="Person", versionAsOf="first", columns="photo, name")
    assert people.columns == ["photo", "name"]
    assert sorted(map(tuple, people.collect()), key=str) == [
        (None, "bob"),
        (b"\x00\x01\x02", "ann"),
    ]


@pytest.mark.spark
def test_an_edge_type_has_its_ends(read: Read) -> None:
    (row,) = read(edge="Knows").collect()
    assert (row.src, row.dst, row.since) == ("ann", "bob", datetime.date(2021, 3, 4))


@pytest.mark.spark
def test_a_query_is_answered_in_process(read: Read) -> None:
    text = """
    query older($than: I32) { match { $p: Person $p.age > $than } return { $p.name as n, $p.age } }
    query nobody() { match { $p: Person $p.age > 99 } return { $p.name as n, count($p) as c } }
    """
    older = read(query=text, queryName="older", queryParams='{"than": 2}')
    assert older.columns == ["n", "p.age"]
    assert sorted(map(tuple, older.collect())) == [
        ("ann", 30),
        ("p0-3", 3),
        ("p1-3", 3),
        ("p2-3", 3),
    ]
    assert read(query=text, queryName="nobody").collect() == []


@pytest.mark.spark
def test_system_tables_tell_about_commits_datasets_and_recoveries(read: Read, uri: str) -> None:
    with Graph.open(uri, auto_optimize=False) as graph:
        commits = [commit.graph_commit_id for commit in graph.list_commits()]
    assert [row.graph_commit_id for row in read(system="commits").collect()] == commits
    counts = {row.type_name: row.entity_count for row in read(system="datasets").collect()}
    assert counts == {"Knows": 1, "Person": 14}
    assert read(system="recoveries").collect() == []
    # The same tables at an older version show what was known then.
    assert read(system="commits", versionAsOf="first").count() == len(commits) - 3


@pytest.mark.spark
def test_a_type_without_rows_is_an_empty_frame(spark: SparkSession, tmp_path: Path) -> None:
    root = str(tmp_path / "empty.omni")
    Graph.init(root, SCHEMA, durability="process", auto_optimize=False).close()
    frame = spark.read.format("omnigraph").option("node", "Person").load(root)
    assert frame.collect() == []


# -- which rows -----------------------------------------------------------------------------------


@pytest.mark.spark
def test_an_option_filter_keeps_what_where_keeps(read: Read) -> None:
    everything = read(node="Person", columns="name,age,seen,active,share").cache()
    for text in [
        "age >= 2 AND name LIKE 'p1%'",
        "NOT (age > 1 OR active)",
        "age IN (0, 3) AND age NOT BETWEEN 1 AND 3",
        "seen >= TIMESTAMP '2020-01-01 00:00:00' OR share < 0.25",
        "age IS NULL AND name <> 'ann'",
        "age < 1.5",
    ]:
        filtered = read(node="Person", columns="name,age,seen,active,share", filter=text)
        assert sorted(filtered.collect()) == sorted(everything.where(text).collect()), text
    everything.unpersist()


@pytest.mark.spark
def test_a_frame_keeps_its_snapshot_while_the_graph_changes(
    spark: SparkSession, tmp_path: Path
) -> None:
    root = str(tmp_path / "g.omni")
    with Graph.init(root, SCHEMA, durability="process", auto_optimize=False) as graph:
        graph.load(lines(person(name="ann")), mode="append")
        before = spark.read.format("omnigraph").option("node", "Person").load(root)
        assert before.count() == 1
        graph.load(lines(person(name="bob")), mode="append")
        after = spark.read.format("omnigraph").option("node", "Person").load(root)
        assert (before.count(), after.count()) == (1, 2)
        joined = before.join(after, "name").count()
    assert joined == 1


@pytest.mark.spark
def test_a_read_finds_its_version_by_branch_commit_tag_number_and_moment(
    read: Read, uri: str
) -> None:
    with Graph.open(uri, auto_optimize=False) as graph:
        first = graph.snapshot_of(ReadTarget.tag("first"))
        created = graph.get_commit(first.commit_id).created_at
    moment = datetime.datetime.fromtimestamp(created / 1e6, datetime.UTC)
    spelled = [
        {"branch": "draft"},
        {"versionAsOf": first.commit_id},
        {"versionAsOf": "first"},
        {"versionAsOf": str(first.manifest_version)},
        {"timestampAsOf": (moment + datetime.timedelta(microseconds=1)).isoformat()},
    ]
    for options in spelled:
        assert read(node="Person", **options).count() == 2, options


# -- partitions -----------------------------------------------------------------------------------


@pytest.mark.spark
def test_partitions_follow_fragments(read: Read) -> None:
    partitions = [
        read(node="Person", **options).select("name").mapInArrow(_counted, "rows long").collect()
        for options in ({"fragmentsPerPartition": "1"}, {"fragmentsPerPartition": "3"}, {})
    ]
    assert [[row.rows for row in rows] for rows in partitions] == [[2, 4, 4, 4], [10, 4], [14]]


def _counted(batches: object) -> object:
    import pyarrow as pa

    rows = sum(batch.num_rows for batch in batches)  # type: ignore[attr-defined]  # Spark gives an iterator
    yield pa.RecordBatch.from_pydict({"rows": [rows]})


def test_neighbours_share_a_task_until_they_have_the_rows_of_a_full_fragment() -> None:
    sizes = [10, 20, 1_000_000, 5, 999_995, 1]
    fragments = [FragmentInfo(number, rows, 0, 0, "") for number, rows in enumerate(sizes)]
    assert grouped_by_rows(fragments) == ((0, 1, 2), (3, 4), (5,))


def test_batches_are_as_large_as_their_rows_allow() -> None:
    narrow, wide, huge = (
        [FragmentInfo(0, 1_000, 0, 1_000 * width, "")] for width in (8, 4_000, 1 << 24)
    )
    assert rows_per_batch(narrow) == BATCH_ROWS_MAX
    assert rows_per_batch(wide) == BATCH_BYTES // 4_000
    assert rows_per_batch(huge) == BATCH_ROWS_MIN


def reader_of(uri: str, **options: str) -> TypeReader:
    source = OmnigraphSource({"path": uri, **options})
    reader = source.reader(source.schema())
    assert isinstance(reader, TypeReader)
    return reader


def test_a_partition_carries_all_that_its_task_needs(uri: str) -> None:
    reader = reader_of(uri, node="Person", filter="age > 1", columns="name")
    (partition,) = pickle.loads(pickle.dumps(reader.partitions()))
    assert isinstance(partition, FragmentsPartition)
    names = [name for batch in reader.read(partition) for name in batch["name"].to_pylist()]
    assert sorted(names) == ["ann", "p0-2", "p0-3", "p1-2", "p1-3", "p2-2", "p2-3"]


def test_a_fragment_in_which_the_index_finds_nothing_has_no_task(uri: str, tmp_path: Path) -> None:
    root = str(tmp_path / "g.omni")
    with Graph.init(root, SCHEMA, durability="process", auto_optimize=False) as graph:
        for number in range(3):
            graph.load(
                lines(*(person(name=f"{number}-{row}", age=number) for row in range(9))),
                mode="append",
            )
        graph.ensure_indices()
    parts = reader_of(root, node="Person", filter="age = 1", fragmentsPerPartition="1").partitions()
    assert [part.value for part in parts] == [(1,)]
    # Without an index on every column nobody knows without reading.
    unindexed = reader_of(
        root, node="Person", filter="age = 1 AND active", fragmentsPerPartition="1"
    )
    assert len(unindexed.partitions()) == 3


def test_a_filter_on_an_indexed_column_reads_only_what_it_must(tmp_path: Path) -> None:
    root = str(tmp_path / "g.omni")
    schema = "node Page { name: String @key  size: I32 @index  text: String }"
    count = 40_000
    rows = pa.table(
        {
            "name": [f"p{row:06d}" for row in range(count)],
            "size": pa.array(range(count), pa.int32()),
            "text": [f"{row:06d}" * 20 for row in range(count)],
        }
    )
    with Graph.init(root, schema, durability="process", auto_optimize=False) as graph:
        graph.load_tables(nodes={"Page": rows.slice(0, count // 2)}, mode="append")
        graph.load_tables(nodes={"Page": rows.slice(count // 2)}, mode="append")
        graph.ensure_indices()
    # Workers import this module, and have no support for tests.
    from support.scans import scan_statistics

    (part,) = reader_of(root, node="Page", filter="size = 31000").partitions()
    (everything,) = reader_of(root, node="Page").partitions()
    assert isinstance(part, FragmentsPartition)
    assert isinstance(everything, FragmentsPartition)
    assert len(part.fragment_ids) == 1
    at = part.scan.at
    datasets = open_store(part.scan.settings).datasets
    handle = datasets.open(at.location, branch=at.branch, version=at.version)
    found, cost = scan_statistics(handle, part.scan.request(part.fragment_ids))
    _, whole = scan_statistics(handle, everything.scan.request(everything.fragment_ids))
    assert found["name"].to_pylist() == ["p031000"]
    assert cost.indexes_loaded > 0
    assert cost.bytes_read * 20 < whole.bytes_read
    without_index = replace(part.scan.request(part.fragment_ids), use_scalar_indexes=False)
    _, scanned = scan_statistics(handle, without_index)
    assert cost.bytes_read < scanned.bytes_read


# -- mistakes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"node": "Person", "colums": "name"}, "did you mean `columns`?"),
        ({}, "exactly one of `node`, `edge`, `query`, `readChangeFeed`, `system`, found none"),
        ({"node": "Person", "edge": "Knows"}, "found `node` and `edge`"),
        ({"node": "Persn"}, "did you mean `Person`?"),
        ({"edge": "Person"}, "names no edge type"),
        ({"node": "Person", "columns": "nam"}, "did you mean `name`?"),
        ({"node": "Person", "columns": "name,,age"}, "joined by commas"),
        ({"node": "Person", "columns": "name,name"}, "names `name` twice"),
        ({"node": "Person", "filter": "agee > 1"}, "--> <filter>:1:1"),
        ({"node": "Person", "fragmentsPerPartition": "0"}, "above zero"),
        ({"node": "Person", "versionAsOf": "1", "timestampAsOf": "2020-01-01"}, "contradicts"),
        ({"node": "Person", "timestampAsOf": "yesterday"}, "ISO 8601"),
        ({"system": "tables"}, "one of commits, recoveries, datasets"),
        ({"system": "commits", "filter": "a = 1"}, "no meaning beside `system`"),
        ({"query": "query q() { match { $p: Person } return { $p.age, $p.age } }"}, "two columns"),
        ({"query": "query q() { match { $p: Person } return { $p } }", "queryParams": "["}, "JSON"),
    ],
)
def test_a_wrong_option_is_refused_before_anything_is_read(
    uri: str, options: dict[str, str], message: str
) -> None:
    with pytest.raises(SourceOptionError) as caught:
        OmnigraphSource({"path": uri, **options}).schema()
    assert message in str(caught.value)


def test_a_root_is_needed() -> None:
    with pytest.raises(SourceOptionError, match="`path` is missing"):
        OmnigraphSource({"node": "Person"})


@pytest.mark.spark
def test_spark_shows_the_mistake_and_where_it_is(read: Read) -> None:
    with pytest.raises(Exception, match=r"1 \| agee > 1"):
        read(node="Person", filter="agee > 1")


# -- finding the format ---------------------------------------------------------------------------


def test_the_module_that_spark_looks_for_is_light() -> None:
    script = "import json, sys, pyspark_omnigraph; print(json.dumps(sorted(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = set(json.loads(run.stdout))
    assert loaded & {"lance", "pandas", "obstore", "boto3", "fastapi", "duckdb"} == set()


def test_options_of_the_storage_reach_the_tasks_and_keep_out_of_the_rest() -> None:
    options = read_options({"path": "s3a://lake/g.omni", "Storage.AWS_Region": "eu", "node": "P"})
    assert options.settings.root.uri == "s3://lake/g.omni"
    assert dict(options.settings.storage_options) == {"aws_region": "eu"}
    assert dict(options.given) == {"node": "P"}


@pytest.mark.spark
def test_storage_options_do_not_show_in_the_plan(
    read: Read, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = read(node="Person", **{"storage.aws_secret_access_key": "hush-hush"})
    frame.explain("extended")
    shown = capsys.readouterr().out
    assert "omnigraph" in shown.lower()
    assert "hush-hush" not in shown


def test_one_module_at_most_touches_the_spark_context() -> None:
    room = Path(__file__).parents[2] / "src" / "omnigraph" / "spark"
    words = ("sparkContext", ".rdd", "_jsc", "_jvm")
    offenders = {
        path.name
        for path in room.rglob("*.py")
        if any(word in path.read_text(encoding="utf-8") for word in words)
    }
    assert offenders <= {"progress.py"}
