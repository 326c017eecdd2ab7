"""Writing one type of a graph from Spark, and streams, without Spark: what its workers call."""

from __future__ import annotations

import datetime
import json
import os
import pickle
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.pandas.types import from_arrow_schema

from omnigraph import Graph
from omnigraph.failpoints import OF_A_WRITE, FailpointError, arm, disarm
from omnigraph.graph import GraphCommit
from omnigraph.lineage import read_lineage
from omnigraph.spark.sink import table_sink as sink_module
from omnigraph.spark.sink.stream import (
    GraphStreamWriter,
    LastBatch,
    StreamIdentity,
    StreamRestartedError,
    is_replayed,
)
from omnigraph.spark.sink.table_sink import GraphWriter, SinkTooLargeError
from omnigraph.spark.source.data_source import OmnigraphSource
from omnigraph.spark.source.options import SourceOptionError
from omnigraph.write.load.options import RowsTiedError
from omnigraph.write.rules.violations import KeyConflictError, ValidationError
from support.lineage import without_lineage

SCHEMA = """
node Person {
    name: String @key
    age: I32?
    total: U64?
    seen: DateTime?
    place: Vector(2)?
    photo: Blob?
}
edge Knows: Person -> Person { since: Date? }
edge Pays: Person -> Person { n: I32 @default(1)  total: I32?  @key(src, dst, n) }
"""


@pytest.fixture
def uri(tmp_path: Path) -> str:
    root = str(tmp_path / "g.omni")
    Graph.init(root, SCHEMA, durability="process", auto_optimize=False).close()
    return root


def source(uri: str, **options: str) -> OmnigraphSource:
    return OmnigraphSource({"path": uri, "durability": "process", **options})


def writer_for(
    uri: str, table: pa.Table, *, overwrite: bool = False, **options: str
) -> GraphWriter:
    made = source(uri, **options).writer(from_arrow_schema(table.schema), overwrite)
    assert isinstance(made, GraphWriter)
    # The object that tasks and the committing worker get is a copy.
    copy = pickle.loads(pickle.dumps(made))
    assert isinstance(copy, GraphWriter)
    return copy


def write(
    uri: str, table: pa.Table, *, tasks: int = 2, overwrite: bool = False, **options: str
) -> None:
    writer = writer_for(uri, table, overwrite=overwrite, **options)
    rows = -(-table.num_rows // tasks) or 1
    parts = [table.slice(task * rows, rows) for task in range(tasks)]
    messages: list[WriterCommitMessage | None] = [
        pickle.loads(pickle.dumps(writer.write(iter(part.to_batches())))) for part in parts
    ]
    writer.commit(messages)


def people(*names: str, **columns: object) -> pa.Table:
    return pa.table({"name": list(names), **columns})


def entities(uri: str) -> list[dict[str, object]]:
    with Graph.open(uri, auto_optimize=False) as graph:
        return [json.loads(line) for line in graph.export_lines()]


def names_of(uri: str) -> list[object]:
    return [one["data"]["id"] for one in entities(uri) if "type" in one]  # type: ignore[index]  # nested JSON


def commits(uri: str) -> Sequence[GraphCommit]:
    with Graph.open(uri, auto_optimize=False) as graph:
        return graph.list_commits()


def staged_files(uri: str) -> list[str]:
    return sorted(path.name for path in Path(uri, "__staging").rglob("rows-*"))


# -- batches --------------------------------------------------------------------------------------


def test_all_tasks_of_a_write_are_one_commit_that_can_be_found_by_its_tag(uri: str) -> None:
    before = len(commits(uri))
    write(
        uri,
        people("ann", "bob", "eve", total=pa.array([1, 2, None], pa.decimal128(20, 0))),
        node="Person",
        commitTag="run-7",
        actor="etl",
        message="nightly",
    )
    newest, *older = commits(uri)
    assert len(older) == before
    assert (newest.actor_id, newest.message) == ("etl", "nightly")
    assert without_lineage(newest.properties) == {"commit_tag": "run-7"}
    lineage = read_lineage(newest.properties)
    assert lineage is not None
    assert (lineage.job.namespace, lineage.job.name) == ("spark", "df.write")
    assert [(one.uri, one.rows) for one in lineage.inputs] == [("memory:Person", 3)]
    assert names_of(uri) == ["ann", "bob", "eve"]
    assert staged_files(uri) == []


def test_every_type_of_the_table_arrives(uri: str) -> None:
    moment = datetime.datetime(2020, 1, 1, 0, 0, 0, 1_500, datetime.UTC)
    table = pa.table(
        {
            "name": ["ann"],
            "age": pa.array([7], pa.int64()),
            "total": pa.array([2**64 - 1], pa.decimal128(20, 0)),
            "seen": pa.array([moment], pa.timestamp("us", tz="UTC")),
            "place": pa.array([[0.5, 1.0]], pa.list_(pa.float32())),
            "photo": pa.array([b"\x00\x01"], pa.binary()),
        }
    )
    write(uri, table, node="Person")
    (ann,) = entities(uri)
    assert ann["data"] == {
        "id": "ann",
        "name": "ann",
        "age": 7,
        "total": 2**64 - 1,
        "seen": 1_577_836_800_001,
        "place": [0.5, 1.0],
        "photo": "base64:AAE=",
    }
    assert without_lineage(commits(uri)[0].properties) == {"truncated_moments": "1"}


def test_append_refuses_ids_that_exist_and_merge_replaces_them(uri: str) -> None:
    write(uri, people("ann", "bob", age=[1, 2]), node="Person")
    with pytest.raises(KeyConflictError, match="'ann'"):
        write(uri, people("ann", "eve", age=[3, 4]), node="Person")
    write(uri, people("ann", "eve", age=[3, 4]), node="Person", graphMode="merge")
    ages = {one["data"]["id"]: one["data"]["age"] for one in entities(uri)}  # type: ignore[index]  # nested JSON
    assert ages == {"ann": 3, "bob": 2, "eve": 4}


def person(uri: str, name: str) -> dict[str, object]:
    """Return what is stored of a person, without nulls."""
    data = next(one["data"] for one in entities(uri) if one["data"]["id"] == name)  # type: ignore[index,call-overload]  # nested JSON
    return {key: value for key, value in data.items() if value is not None}


def test_a_merge_keeps_columns_that_the_frame_does_not_have(uri: str) -> None:
    total = pa.array([5], pa.decimal128(20, 0))
    write(uri, people("ann", age=[1], total=total), node="Person")
    merge = {"node": "Person", "graphMode": "merge"}
    write(uri, people("ann", age=[2]), **merge)
    assert person(uri, "ann") == {"id": "ann", "name": "ann", "age": 2, "total": 5}
    empty = people("ann", age=pa.array([None], pa.int32()))
    write(uri, empty, **merge, nullCells="keep")
    assert person(uri, "ann")["age"] == 2
    write(uri, empty, **merge)
    assert person(uri, "ann") == {"id": "ann", "name": "ann", "total": 5}
    write(uri, people("ann", age=[3]), **merge, missing="null")
    assert person(uri, "ann") == {"id": "ann", "name": "ann", "age": 3}


def test_rows_of_one_id_are_combined_in_their_order(uri: str) -> None:
    table = people(
        *("ann", "ann", "ann"),
        age=pa.array([2, 1, None], pa.int32()),
        total=pa.array([30, 10, 20], pa.decimal128(20, 0)),
    )
    merge = {"node": "Person", "graphMode": "merge", "nullCells": "keep"}
    write(uri, table, **merge, onDuplicate="combine", orderBy="total")
    assert person(uri, "ann") == {"id": "ann", "name": "ann", "age": 2, "total": 30}
    write(uri, table, **merge, onDuplicate="first", orderBy="total")
    assert person(uri, "ann") == {"id": "ann", "name": "ann", "age": 1, "total": 10}
    with pytest.raises(RowsTiedError, match="Person 'ann' has several rows that are equal in name"):
        write(uri, table, **merge, onDuplicate="last", orderBy="name")


def test_edges_of_one_key_need_an_order_as_nodes_do(uri: str) -> None:
    write(uri, people("ann", "bob"), node="Person")
    ends = {"from": ["ann", "ann"], "to": ["bob", "bob"]}
    merge = {"edge": "Pays", "graphMode": "merge", "onDuplicate": "last", "orderBy": "total"}
    tied = pa.table(ends | {"total": pa.array([5, 5], pa.int32())})
    with pytest.raises(RowsTiedError, match="Pays 'ann, bob' has several rows that are equal in"):
        write(uri, tied, **merge)
    with pytest.raises(RowsTiedError, match="Pays 'ann, bob, 7' has several rows"):
        write(uri, tied.append_column("n", pa.array([7, 7], pa.int32())), **merge)
    write(uri, pa.table(ends | {"total": pa.array([6, 5], pa.int32())}), **merge)
    (edge,) = [one for one in entities(uri) if "edge" in one]
    assert edge["data"]["total"] == 6  # type: ignore[index]  # nested JSON


def test_rows_without_a_value_to_order_by_are_the_first_as_in_spark(uri: str) -> None:
    table = people("ann", "ann", age=pa.array([None, 4], pa.int32()))
    merge = {"node": "Person", "graphMode": "merge", "orderBy": "age"}
    write(uri, table, **merge, onDuplicate="last")
    assert person(uri, "ann")["age"] == 4
    write(uri, table, **merge, onDuplicate="first")
    assert "age" not in person(uri, "ann")


def test_overwrite_leaves_exactly_the_rows_of_the_frame(uri: str) -> None:
    write(uri, people("ann", "bob"), node="Person")
    write(uri, people("eve"), node="Person", overwrite=True)
    assert names_of(uri) == ["eve"]


def test_a_write_that_breaks_a_rule_lands_nothing_and_keeps_what_tasks_left(uri: str) -> None:
    write(uri, people("ann"), node="Person")
    before = commits(uri)
    edges = pa.table({"src": ["ann", "ann"], "dst": ["ann", "nobody"]})
    with pytest.raises(ValidationError, match="dst 'nobody' not found in Person"):
        write(uri, edges, edge="Knows")
    assert commits(uri) == before
    assert len(staged_files(uri)) == 2


def test_abort_deletes_nothing(uri: str) -> None:
    table = people("ann")
    writer = writer_for(uri, table, node="Person")
    message = writer.write(iter(table.to_batches()))
    writer.abort([message, None])
    assert len(staged_files(uri)) == 1
    assert names_of(uri) == []


def test_what_a_dead_attempt_left_is_never_read(uri: str) -> None:
    table = people("ann")
    writer = writer_for(uri, table, node="Person")
    writer.write(iter(table.to_batches()))
    message = writer.write(iter(table.to_batches()))
    writer.commit([message])
    assert names_of(uri) == ["ann"]


def test_cleanup_takes_what_is_left_of_dead_writes(uri: str) -> None:
    table = people("ann")
    writer_for(uri, table, node="Person").write(iter(table.to_batches()))
    with Graph.open(uri, auto_optimize=False) as graph:
        graph.cleanup(keep_versions=10, confirm=True)
        assert len(staged_files(uri)) == 1
        an_hour_ago = time.time() - 3_600
        for path in Path(uri, "__staging").rglob("rows-*"):
            os.utime(path, (an_hour_ago, an_hour_ago))
        graph.cleanup(keep_versions=10, orphan_age_s=0, confirm=True)
        assert len(staged_files(uri)) == 1, "the record of the write is young"
        for path in Path(uri, "__staging").glob("*.json"):
            os.utime(path, (an_hour_ago, an_hour_ago))
        graph.cleanup(keep_versions=10, orphan_age_s=0, confirm=True)
    assert [path for path in Path(uri, "__staging").rglob("*") if path.is_file()] == []


def test_a_cleanup_beside_a_long_write_takes_none_of_its_files(uri: str) -> None:
    writer = writer_for(uri, people("ann"), node="Person")
    early = writer.write(iter(people("ann").to_batches()))
    an_hour_ago = time.time() - 3_600
    for path in Path(uri, "__staging").rglob("*"):
        os.utime(path, (an_hour_ago, an_hour_ago))
    # A second task runs while the first one's files are old: it keeps them alive.
    late = writer.write(iter(people("bob").to_batches()))
    with Graph.open(uri, auto_optimize=False) as graph:
        graph.cleanup(keep_versions=10, orphan_age_s=0, confirm=True)
    writer.commit([early, late])
    assert names_of(uri) == ["ann", "bob"]
    assert [path for path in Path(uri, "__staging").rglob("*") if path.is_file()] == []


def test_a_write_without_rows_makes_no_commit(uri: str) -> None:
    before = commits(uri)
    write(uri, people("ann").slice(0, 0), node="Person")
    assert commits(uri) == before


def test_more_than_one_process_can_check_is_refused_with_the_way_that_has_no_bound(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = people("ann", "bob")
    monkeypatch.setattr(sink_module, "STAGED_BYTES_MAX", table.nbytes - 1)
    # Each task is below the bound, all of them together are not.
    with pytest.raises(SinkTooLargeError, match=r"graph\.load"):
        write(uri, table, tasks=2, node="Person")
    with pytest.raises(SinkTooLargeError, match=r"graph\.load"):
        write(uri, table, tasks=1, node="Person")
    assert names_of(uri) == []


@pytest.mark.parametrize(
    ("options", "overwrite", "message"),
    [
        ({"system": "commits"}, False, "can only be read"),
        ({"node": "Person", "filter": "age > 1"}, False, "no meaning beside `a write`"),
        ({"node": "Persn"}, False, "did you mean `Person`?"),
        ({"node": "Person", "graphMode": "overwrite"}, False, "append or merge"),
        ({"node": "Person", "graphMode": "merge"}, True, "is overwrite beside mode 'overwrite'"),
        ({"node": "Person", "durability": "none"}, False, "full or process"),
        ({"node": "Person", "txnAppId": "x"}, False, "no meaning beside"),
        ({"edge": "Knows"}, False, "requires field 'from' and field 'to'"),
    ],
)
def test_a_wrong_write_is_refused_before_any_row_moves(
    uri: str, options: dict[str, str], overwrite: bool, message: str
) -> None:
    schema = from_arrow_schema(people("ann").schema)
    with pytest.raises(SourceOptionError) as caught:
        OmnigraphSource({"path": uri, **options}).writer(schema, overwrite)
    assert message in str(caught.value)


# -- streams --------------------------------------------------------------------------------------


def stream(uri: str, **options: str) -> GraphStreamWriter:
    made = source(uri, node="Person", **options).streamWriter(
        from_arrow_schema(people("ann").schema), False
    )
    assert isinstance(made, GraphStreamWriter)
    return made


def run_batch(writer: GraphStreamWriter, batch_id: int, *names: str) -> None:
    writer.commit([writer.write(iter(people(*names).to_batches()))], batch_id)


def test_every_batch_is_one_commit_that_remembers_its_number(uri: str) -> None:
    writer = stream(uri, queryName="feed", checkpointLocation="file:///ck/")
    run_batch(writer, 0, "ann")
    run_batch(writer, 1, "bob")
    newest, older = commits(uri)[:2]
    known = {"txn_app_id": "feed", "txn_checkpoint": "/ck"}
    assert without_lineage(newest.properties) == {**known, "txn_batch_id": "1"}
    lineage = read_lineage(newest.properties)
    assert lineage is not None
    assert (lineage.job.namespace, lineage.job.name) == ("spark", "feed")
    assert without_lineage(older.properties) == {**known, "txn_batch_id": "0"}
    assert staged_files(uri) == []


def test_a_replayed_batch_is_skipped(uri: str) -> None:
    run_batch(stream(uri, queryName="feed"), 4, "ann")
    before = commits(uri)
    run_batch(stream(uri, queryName="feed"), 4, "ann")
    assert commits(uri) == before
    # The batch of another stream with the same number is another batch.
    run_batch(stream(uri, txnAppId="other", queryName="feed"), 4, "bob")
    assert names_of(uri) == ["ann", "bob"]


def test_a_batch_is_not_doubled_by_another_driver_of_the_same_stream(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, fast = stream(uri, queryName="feed"), stream(uri, queryName="feed")
    original = sink_module.load_parts
    raced: list[int] = []

    def load_after_a_rival(*args: object, **kwargs: object) -> None:
        if not raced:
            raced.append(1)
            run_batch(fast, 0, "ann")
        original(*args, **kwargs)  # type: ignore[arg-type]  # passed on as they are

    monkeypatch.setattr("omnigraph.spark.sink.stream.load_parts", load_after_a_rival)
    run_batch(slow, 0, "ann")
    assert names_of(uri) == ["ann"]
    assert [commit.properties.get("txn_batch_id") for commit in commits(uri)] == ["0", None]


DYING_POINTS = list(OF_A_WRITE)


@pytest.mark.parametrize("point", [*DYING_POINTS, "before", "after"])
def test_a_batch_that_died_anywhere_and_is_replayed_is_there_once(
    uri: str, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    run_batch(stream(uri, queryName="feed"), 0, "ann")

    def die(*_: object, **__: object) -> None:
        raise FailpointError(point)

    if point == "before":
        monkeypatch.setattr("omnigraph.spark.sink.stream.load_parts", die)
    elif point == "after":
        monkeypatch.setattr("omnigraph.spark.sink.stream.remove_parts", die)
    else:
        arm(point, die)
    try:
        with suppress(FailpointError):
            run_batch(stream(uri, queryName="feed"), 1, "bob", "eve")
    finally:
        disarm()
        monkeypatch.undo()
    run_batch(stream(uri, queryName="feed"), 1, "bob", "eve")
    run_batch(stream(uri, queryName="feed"), 2, "moe")
    assert names_of(uri) == ["ann", "bob", "eve", "moe"]
    numbers = [commit.properties.get("txn_batch_id") for commit in commits(uri)]
    assert [number for number in numbers if number] == ["2", "1", "0"]


def test_a_new_checkpoint_under_an_old_id_is_an_error(uri: str) -> None:
    run_batch(stream(uri, queryName="feed", checkpointLocation="/a"), 0, "ann")
    run_batch(stream(uri, queryName="feed", checkpointLocation="/a"), 1, "bob")
    with pytest.raises(StreamRestartedError, match="new checkpoint"):
        run_batch(stream(uri, queryName="feed", checkpointLocation="/b"), 2, "eve")
    with pytest.raises(StreamRestartedError, match="batch 0"):
        run_batch(stream(uri, queryName="feed"), 0, "eve")
    assert names_of(uri) == ["ann", "bob"]


def test_a_stream_without_a_name_is_refused(uri: str) -> None:
    with pytest.raises(SourceOptionError, match=r"\.queryName"):
        stream(uri)


@pytest.mark.parametrize(
    ("checkpoint", "batch_id", "last", "replayed"),
    [
        ("/a", 0, None, False),
        ("/a", 1, LastBatch(0, "/a"), False),
        ("/a", 7, LastBatch(0, "/a"), False),
        ("/a", 1, LastBatch(1, "/a"), True),
        (None, 1, LastBatch(1, "/a"), True),
        ("/a", 1, LastBatch(1, None), True),
        ("/a", 0, LastBatch(1, "/a"), None),
        ("/b", 2, LastBatch(1, "/a"), None),
        ("/b", 1, LastBatch(1, "/a"), None),
        (None, 0, LastBatch(1, None), None),
    ],
)
def test_the_verdict_about_a_batch(
    checkpoint: str | None, batch_id: int, last: LastBatch | None, replayed: bool | None
) -> None:
    identity = StreamIdentity("feed", checkpoint)
    if replayed is None:
        with pytest.raises(StreamRestartedError):
            is_replayed(identity, batch_id, last)
    else:
        assert is_replayed(identity, batch_id, last) is replayed
