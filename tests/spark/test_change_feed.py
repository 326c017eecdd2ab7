"""The change feed through the data source: the same changes as the feed in process, once each."""

from __future__ import annotations

import datetime
import json
import pickle
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles

from omnigraph.changes.commit_changes import ParentlessCommitError
from omnigraph.changes.diff import ChangeGapError, SchemaBoundaryError
from omnigraph.changes.feed import FeedRequest
from omnigraph.changes.tokens import CursorRejectedError
from omnigraph.errors import OmnigraphError
from omnigraph.graph import Graph, ReadTarget
from omnigraph.spark.source.data_source import OmnigraphSource
from omnigraph.spark.source.options import SourceOptionError
from omnigraph.spark.source.stream import ChangeStream

SCHEMA = """
node Doc { slug: String @key  note: String?  at: DateTime?  body: Blob? }
edge Cites: Doc -> Doc { weight: F64? }
"""

Row = dict[str, Any]


def new_graph(root: Path) -> Graph:
    return Graph.init(str(root / "g.omni"), SCHEMA, durability="process", auto_optimize=False)


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return new_graph(tmp_path)


def doc(slug: str, **data: object) -> Row:
    return {"type": "Doc", "data": {"slug": slug, **data}}


def cites(source: str, target: str, weight: float | None = None) -> Row:
    data = {"id": f"{source}-{target}", "weight": weight}
    return {"edge": "Cites", "from": source, "to": target, "data": data}


def load(graph: Graph, *records: Row, branch: str = "main") -> None:
    lines = "\n".join(json.dumps(record) for record in records)
    graph.load(lines.encode(), mode="merge", branch=branch, on_duplicate="last")


def head(graph: Graph) -> str:
    return graph.list_commits()[0].graph_commit_id


# -- what the feed in process says -----------------------------------------------------------------

_IMAGES = {
    "insert": (("insert", "after"),),
    "update": (("update_preimage", "before"), ("update_postimage", "after")),
    "delete": (("delete", "before"),),
}


def translated(graph: Graph, start: str, branch: str = "main") -> list[tuple[object, ...]]:
    """Return the rows that the feed in process tells, as the data source would."""
    rows: list[tuple[object, ...]] = []
    request = FeedRequest(start=start, limit=8_000, commits_max=512)
    for block in graph.poll_changes(request, branch=branch).blocks:
        for change in block.changes:
            for change_type, side in _IMAGES[change["op"]]:
                properties = dict(change[side]["properties"])
                properties.pop("body", None)
                ends = change[side].get("endpoints", {})
                name = change["type"]["name"]
                entity = (change["kind"], name, change["id"], ends.get("from"), ends.get("to"))
                cause = (change_type, block.cause["graph_commit_id"])
                rows.append((*entity, tuple(sorted(properties.items())), *cause))
    return rows


def as_told(rows: Iterable[Row]) -> list[tuple[object, ...]]:
    names = ("entity_kind", "type_name", "id", "src", "dst")
    return [
        (
            *(row[name] for name in names),
            tuple(sorted(json.loads(row["properties"]).items())),
            row["_change_type"],
            row["_graph_commit_id"],
        )
        for row in rows
    ]


# -- the data source without a JVM -----------------------------------------------------------------


def source(graph: Graph, **options: str) -> OmnigraphSource:
    return OmnigraphSource({"path": graph.uri, "readChangeFeed": "true", **options})


def travelled(partition: InputPartition) -> InputPartition:
    copy = pickle.loads(pickle.dumps(partition))
    assert isinstance(copy, InputPartition)
    return copy


def rows_of(
    reader: DataSourceReader | ChangeStream, partitions: Iterable[InputPartition]
) -> list[Row]:
    return [
        row
        for partition in partitions
        for batch in reader.read(travelled(partition))
        for row in batch.to_pylist()  # type: ignore[union-attr]  # ours are batches
    ]


def read(graph: Graph, **options: str) -> list[Row]:
    made = source(graph, **options)
    reader = made.reader(made.schema())
    return rows_of(reader, reader.partitions())


def stream_of(graph: Graph, **options: str) -> ChangeStream:
    made = source(graph, **options)
    stream = made.streamReader(made.schema())
    assert isinstance(stream, ChangeStream)
    return stream


names = st.sampled_from(["a", "b", "c", "d"])
notes = st.sampled_from([None, "x", "y"])
steps = st.one_of(
    st.tuples(st.just("doc"), names, notes),
    st.tuples(st.just("cites"), names, names),
    st.tuples(st.just("delete"), names, st.none()),
    st.tuples(st.just("optimize"), st.none(), st.none()),
    st.tuples(st.just("merge"), names, notes),
)


def run(graph: Graph, step: tuple[str, Any, Any]) -> None:
    what, first, second = step
    if what == "doc":
        load(graph, doc(first, note=second))
    elif what == "delete":
        graph.mutate(f'query d() {{ delete Doc where slug = "{first}" }}')
    elif what == "optimize":
        graph.optimize()
    elif what == "merge":
        graph.branch_create("side")
        load(graph, doc(first, note=second), doc("merged"), branch="side")
        graph.branch_merge("side", "main")
        graph.branch_delete("side")
    else:
        load(graph, doc(first), doc(second), cites(first, second, 0.5))


@settings(suppress_health_check=list(HealthCheck), max_examples=10)
@given(
    st.lists(steps, min_size=1, max_size=6),
    st.lists(st.tuples(st.integers(1, 3), st.booleans()), max_size=20),
)
def test_batch_and_stream_tell_what_the_feed_in_process_tells(
    tmp_path_factory: pytest.TempPathFactory,
    work: list[tuple[str, Any, Any]],
    triggers: list[tuple[int, bool]],
) -> None:
    graph = new_graph(tmp_path_factory.mktemp("feed"))
    expected_stream: list[tuple[object, ...]] = []
    offset: dict[str, str] | None = None
    log: list[tuple[dict[str, str], dict[str, str]]] = []
    plan = iter(triggers)
    for step in [*work, None, None]:
        if step is not None:
            run(graph, step)
        commits_max, is_replayed = next(plan, (512, False))
        stream = stream_of(graph, startingVersion="earliest", maxCommitsPerTrigger=str(commits_max))
        start = offset if offset is not None else stream.initialOffset()
        limit = ReadAllAvailable() if step is None else stream.getDefaultReadLimit()
        end = stream.latestOffset(start, limit)
        if end != start:
            log.append((start, end))
            if is_replayed and step is not None:
                # Planned and lost: the next process repeats the batch from the checkpoint.
                stream.partitions(start, end)
                load(graph, doc("meanwhile", note=str(len(log))))
                stream = stream_of(graph, startingVersion="earliest")
            expected_stream += as_told(rows_of(stream, stream.partitions(start, end)))
            offset = end
    everything = translated(graph, "beginning")
    assert sorted(as_told(read(graph, startingVersion="earliest")), key=str) == sorted(
        everything, key=str
    )
    assert sorted(expected_stream, key=str) == sorted(everything, key=str)
    order = [row[-1] for row in everything]
    assert [row[-1] for row in expected_stream] == order


def test_a_type_has_its_own_columns_and_blobs_only_when_they_are_named(graph: Graph) -> None:
    load(graph, doc("a", at="2020-01-01T00:00:00.123Z", body="base64:AAEC"), cites("a", "a", 1.0))
    load(graph, doc("a", note="later", at="2020-01-01T00:00:00.123Z", body="base64:AA=="))
    rows = read(graph, startingVersion="earliest", node="Doc", columns="slug,at,body")
    moment = datetime.datetime(2020, 1, 1, 0, 0, 0, 123_000, datetime.UTC)
    assert [(row["_change_type"], row["slug"], row["at"], row["body"]) for row in rows] == [
        ("insert", "a", moment, b"\x00\x01\x02"),
        ("update_preimage", "a", moment, b"\x00\x01\x02"),
        ("update_postimage", "a", moment, b"\x00"),
    ]
    commits = graph.list_commits()
    assert [row["_commit_version"] for row in rows] == [
        commits[1].manifest_version,
        *[commits[0].manifest_version] * 2,
    ]
    assert rows[0]["_commit_timestamp"].timestamp() * 1e6 == pytest.approx(commits[1].created_at)
    (edge,) = read(graph, startingVersion="earliest", edge="Cites")
    assert (edge["src"], edge["dst"], edge["weight"]) == ("a", "a", 1.0)
    assert "body" not in read(graph, startingVersion="earliest", node="Doc")[0]


def test_both_ends_of_a_range_are_part_of_it(graph: Graph) -> None:
    heads = []
    for name in ("a", "b", "c"):
        load(graph, doc(name))
        heads.append(head(graph))
    graph.tag_create("middle", ReadTarget.commit(heads[1]))
    version = str(graph.list_commits()[1].manifest_version)
    for first in (heads[1], "middle", version):
        assert [row["id"] for row in read(graph, startingVersion=first)] == ["b", "c"]
    for last in (heads[1], "middle", version):
        rows = read(graph, startingVersion="earliest", endingVersion=last)
        assert [row["id"] for row in rows] == ["a", "b"]
    assert read(graph, startingVersion="999999") == []


def test_a_stream_without_a_start_begins_with_the_snapshot_and_one_at_latest_with_nothing(
    graph: Graph,
) -> None:
    load(graph, doc("a"), doc("b"), cites("a", "b"))
    streams = {"whole": stream_of(graph), "later": stream_of(graph, startingVersion="latest")}
    ends = {
        name: stream.latestOffset(stream.initialOffset(), ReadMaxFiles(1))
        for name, stream in streams.items()
    }
    load(graph, doc("c"))
    # A restart before the first batch was done: its end is fixed, and its rows with it.
    streams = {"whole": stream_of(graph), "later": stream_of(graph, startingVersion="latest")}
    first = {
        name: rows_of(stream, stream.partitions(stream.initialOffset(), ends[name]))
        for name, stream in streams.items()
    }
    assert [(row["id"], row["_change_type"]) for row in first["whole"]] == [
        ("a", "insert"),
        ("b", "insert"),
        ("a-b", "insert"),
    ]
    assert first["later"] == []
    for name, stream in streams.items():
        end = stream.latestOffset(ends[name], ReadAllAvailable())
        (row,) = rows_of(stream, stream.partitions(ends[name], end))
        assert row["id"] == "c"
        assert stream.latestOffset(end, ReadAllAvailable()) == end


def test_a_stream_of_what_is_available_now_ends_where_it_was_started(graph: Graph) -> None:
    for name in ("a", "b", "c"):
        load(graph, doc(name))
    stream = stream_of(graph, startingVersion="earliest")
    stream.prepareForTriggerAvailableNow()
    load(graph, doc("late"))
    seen, offset = [], stream.initialOffset()
    while (end := stream.latestOffset(offset, ReadMaxFiles(2))) != offset:
        seen += [row["id"] for row in rows_of(stream, stream.partitions(offset, end))]
        offset = end
    assert seen == ["a", "b", "c"]


def test_an_offset_of_another_branch_life_or_type_is_rejected(graph: Graph) -> None:
    load(graph, doc("a"))
    graph.branch_create("side")
    stream = stream_of(graph, branch="side")
    offset = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    for other in (stream_of(graph), stream_of(graph, branch="side", node="Doc")):
        with pytest.raises(CursorRejectedError, match="change cursor rejected"):
            other.latestOffset(offset, ReadAllAvailable())
    graph.branch_delete("side")
    graph.branch_create("side")
    with pytest.raises(CursorRejectedError, match="another incarnation"):
        stream_of(graph, branch="side").latestOffset(offset, ReadAllAvailable())


def test_what_cleanup_has_taken_is_a_gap_that_names_its_commit(graph: Graph) -> None:
    for name in ("a", "b", "c"):
        load(graph, doc(name, note="x"))
    first = graph.list_commits()[-2].graph_commit_id
    graph.cleanup(keep_versions=1, orphan_age_s=0, confirm=True)
    with pytest.raises(ChangeGapError) as caught:
        read(graph, startingVersion="earliest")
    assert caught.value.graph_commit_id == first


def test_a_change_of_columns_is_a_boundary_and_the_first_commit_has_no_changes(
    graph: Graph,
) -> None:
    load(graph, doc("a"))
    before = head(graph)
    graph.apply_schema(SCHEMA.replace("note: String?", "note: String?  more: I32?"))
    load(graph, doc("b", more=1))
    with pytest.raises(SchemaBoundaryError):
        read(graph, startingVersion="earliest")
    (row,) = read(graph, startingVersion=head(graph), node="Doc")
    assert row["more"] == 1
    (row,) = read(graph, startingVersion="earliest", endingVersion=before, node="Doc")
    assert "more" not in row
    with pytest.raises(ParentlessCommitError):
        read(graph, startingVersion=graph.list_commits()[-1].graph_commit_id)


def test_a_change_of_columns_is_read_across_on_request(graph: Graph) -> None:
    load(graph, doc("a", note="x"))
    changed = SCHEMA.replace("note: String?", 'said: String? @rename_from("note")')
    graph.apply_schema(changed.replace("body: Blob?", "body: Blob?  more: I32 @default(7)"))
    load(graph, doc("a", said="y", more=7), doc("b", more=1))
    options = {"startingVersion": "earliest", "schemaChanges": "deliver"}
    rows = read(graph, node="Doc", **options)
    told = [(row["_change_type"], row["id"], row["said"], row["more"]) for row in rows]
    assert told == [
        ("insert", "a", "x", 7),
        ("update_preimage", "a", "x", 7),
        ("update_postimage", "a", "y", 7),
        ("insert", "b", None, 1),
    ]
    first, *_ = read(graph, **options)
    assert json.loads(first["properties"])["note"] == "x"
    with pytest.raises(OmnigraphError, match="schemaChanges"):
        read(graph, startingVersion="earliest", schemaChanges="perhaps")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "`startingVersion` is missing"),
        ({"startingVersion": "earliest", "versionAsOf": "1"}, "no meaning beside"),
        ({"startingVersion": "earliest", "columns": "slug"}, "no meaning beside"),
        ({"startingVersion": "earliest", "node": "Doc", "columns": "slugg"}, "did you mean `slug`"),
        ({"startingVersion": "earliest", "node": "Doc", "edge": "Cites"}, "contradicts"),
        ({"startingVersion": "earliest", "filter": "a = 1"}, "no meaning beside"),
        ({"startingVersion": "earliest", "maxCommitsPerTrigger": "3"}, "beside `a batch`"),
        ({"startingVersion": "01JC0000000000000000000000"}, "is no commit"),
        ({"readChangeFeed": "perhaps"}, "is `true` or `false`"),
    ],
)
def test_a_wrong_option_is_refused(graph: Graph, options: dict[str, str], message: str) -> None:
    with pytest.raises(SourceOptionError) as caught:
        read(graph, **options)
    assert message in str(caught.value)


def test_a_stream_is_of_changes_and_has_no_end(graph: Graph) -> None:
    with pytest.raises(SourceOptionError, match="beside `a stream`"):
        stream_of(graph, endingVersion="1")
    made = OmnigraphSource({"path": graph.uri, "node": "Doc"})
    with pytest.raises(SourceOptionError, match="`readChangeFeed` is missing"):
        made.streamReader(made.schema())
    with pytest.raises(SourceOptionError, match="without `readChangeFeed`"):
        OmnigraphSource({"path": graph.uri, "node": "Doc", "startingVersion": "1"}).schema()


# -- with Spark ------------------------------------------------------------------------------------


@pytest.mark.spark
def test_spark_reads_a_range_of_changes(spark: SparkSession, graph: Graph) -> None:
    load(graph, doc("a"), cites("a", "a"))
    load(graph, doc("a", note="x"))
    reader = spark.read.format("omnigraph").option("readChangeFeed", "true")
    frame = reader.option("startingVersion", "earliest").load(graph.uri)
    assert as_told(row.asDict() for row in frame.collect()) == translated(graph, "beginning")
    load(graph, doc("b"))
    assert frame.count() == len(translated(graph, "beginning")) - 1
    # Spark gives a reader without partitions one of its own making.
    head = graph.commits.head_id()
    edges = spark.read.format("omnigraph").options(edge="Cites", readChangeFeed="true")
    assert edges.option("startingVersion", head).load(graph.uri).count() == 0


def streamed(
    spark: SparkSession, graph: Graph, checkpoint: Path, *, commits: int, restarts: int
) -> None:
    """Make commits while a stream is stopped and started; compare what its sink was given."""
    received: dict[int, list[Row]] = {}

    def keep(frame: DataFrame, batch_id: int) -> None:
        # A batch that is given again replaces what it has given before.
        received[batch_id] = [row.asDict() for row in frame.collect()]

    def start(**trigger: Any) -> Any:
        reader = spark.readStream.format("omnigraph").option("readChangeFeed", "true")
        changes = reader.option("startingVersion", "earliest").load(graph.uri)
        writer = changes.writeStream.foreachBatch(keep).option("checkpointLocation", checkpoint)
        return writer.trigger(**trigger).start()

    def commit(numbers: range) -> None:
        for number in numbers:
            load(graph, doc(f"d{number % 7}", note=str(number)))
            if number % 5 == 4:
                graph.mutate(f'query d() {{ delete Doc where slug = "d{number % 7}" }}')

    part = -(-commits // (restarts + 1))
    for round_number in range(restarts + 1):
        numbers = range(round_number * part, min((round_number + 1) * part, commits))
        writer = threading.Thread(target=commit, args=(numbers,))
        before = len(received)
        query = start(processingTime="0 seconds")
        writer.start()
        while len(received) == before and query.isActive:
            query.awaitTermination(0.05)
        query.stop()
        writer.join()
    start(availableNow=True).awaitTermination()
    rows = [row for batch_id in sorted(received) for row in received[batch_id]]
    assert as_told(rows) == translated(graph, "beginning")


@pytest.mark.spark
def test_a_stream_that_is_restarted_gets_every_change_once_in_the_order_of_commits(
    spark: SparkSession, graph: Graph, tmp_path: Path
) -> None:
    streamed(spark, graph, tmp_path / "checkpoint", commits=12, restarts=2)


@pytest.mark.slow
@pytest.mark.timeout(1_800)
@pytest.mark.spark
def test_fifty_commits_and_five_restarts_lose_and_double_nothing(
    spark: SparkSession, graph: Graph, tmp_path: Path
) -> None:
    streamed(spark, graph, tmp_path / "checkpoint", commits=50, restarts=5)
