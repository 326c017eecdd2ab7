"""A graph and Spark together: frames, writes, streams and exports on a session."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
from pyspark.sql import DataFrame, SparkSession

from omnigraph import Graph, ReadTarget, SourceError
from omnigraph.spark.source.frames import GraphFramesMissingError, PinnedGraph, graph_tables
from omnigraph.spark.source.options import SourceOptionError
from omnigraph.store import StoreSettings
from omnigraph.store.uri import parse_root
from support.lineage import without_lineage

SCHEMA = """
node Person { name: String @key age: I32? }
node City { name: String @key }
edge Knows: Person -> Person
edge Lives: Person -> City
"""
RECORDS = [
    *(
        {"type": "Person", "data": {"name": name, "age": age}}
        for name, age in [("ann", 1), ("bob", 2)]
    ),
    {"type": "City", "data": {"name": "ann"}},
    {"edge": "Knows", "from": "ann", "to": "bob"},
    {"edge": "Lives", "from": "bob", "to": "ann"},
]


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    made = Graph.init(tmp_path / "g.omni", SCHEMA, durability="process", auto_optimize=False)
    made.load("\n".join(map(json.dumps, RECORDS)).encode(), mode="append")
    return made


@pytest.mark.spark
def test_a_type_is_a_frame_of_one_snapshot(spark: SparkSession, graph: Graph) -> None:
    people = graph.to_spark(spark, "Person", columns=["name"], where="age > 1")
    graph.load(b'{"type": "Person", "data": {"name": "eve", "age": 9}}', mode="append")
    assert [tuple(row) for row in people.collect()] == [("bob",)]
    assert graph.to_spark(spark, "edge:Knows", columns=["src", "dst"]).collect()[0].src == "ann"


def test_what_is_wrong_with_a_frame_is_raised_at_once_with_its_type(graph: Graph) -> None:
    class Session:
        """No session is asked for anything."""

        createDataFrame = None  # noqa: N815 - Spark's name

    with pytest.raises(SourceError) as caught:
        graph.to_spark(Session(), "Person", where="agee > 1")
    assert caught.value.diagnostics[0].code == "F101"
    with pytest.raises(SourceOptionError, match="did you mean `age`"):
        graph.to_spark(Session(), "Person", columns=["agee"])
    with pytest.raises(SourceOptionError, match="names no node type"):
        graph.to_spark(Session(), "Persons")


@pytest.mark.spark
def test_a_graph_frame_has_vertices_and_edges_of_all_types(
    spark: SparkSession, graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    class GraphFrame:
        def __init__(self, vertices: DataFrame, edges: DataFrame) -> None:
            self.vertices = vertices
            self.edges = edges

    module = ModuleType("graphframes")
    module.GraphFrame = GraphFrame  # type: ignore[attr-defined]  # stands in for the package
    monkeypatch.setitem(sys.modules, "graphframes", module)
    frame = graph.graphframe(spark)
    assert sorted(tuple(row) for row in frame.vertices.collect()) == [
        ("City:ann", "City", "ann"),
        ("Person:ann", "Person", "ann"),
        ("Person:bob", "Person", "bob"),
    ]
    assert sorted((row.src, row.dst, row.relationship) for row in frame.edges.collect()) == [
        ("Person:ann", "Person:bob", "Knows"),
        ("Person:bob", "City:ann", "Lives"),
    ]


def test_without_the_package_a_graph_frame_says_what_to_install(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Session:
        createDataFrame = None  # noqa: N815 - Spark's name

    monkeypatch.setitem(sys.modules, "graphframes", None)
    with pytest.raises(GraphFramesMissingError, match="GraphFrames is not installed"):
        graph.graphframe(Session())


def test_a_graph_frame_needs_edges(tmp_path: Path) -> None:
    with Graph.init(tmp_path / "n.omni", "node A { name: String @key }") as lonely:
        settings = StoreSettings(parse_root(lonely.uri))
        with pytest.raises(SourceOptionError, match="without edges"):
            graph_tables(PinnedGraph(settings, lonely.snapshot()), None)  # type: ignore[arg-type]  # never asked


@pytest.mark.spark
def test_a_frame_is_written_as_one_commit(spark: SparkSession, graph: Graph) -> None:
    before = len(graph.list_commits())
    people = spark.sql(
        "SELECT concat('p', id) AS name, cast(id AS int) AS age FROM range(0, 40, 1, 4)"
    )
    writer = people.write.format("omnigraph").mode("append")
    writer.options(node="Person", commitTag="run-1", durability="process").save(graph.uri)
    newest, *older = graph.list_commits()
    assert without_lineage(newest.properties) == {"commit_tag": "run-1"}
    assert len(older) == before
    assert graph.snapshot().entry("node:Person").row_count == 42
    with pytest.raises(Exception, match="node 'p0' of type Person already exists"):
        writer.save(graph.uri)


@pytest.mark.spark
def test_a_stream_is_written_batch_by_batch(
    spark: SparkSession, graph: Graph, tmp_path: Path
) -> None:
    inbox = tmp_path / "inbox"
    inbox.mkdir()

    def put(number: int) -> None:
        rows = [{"name": f"s{number}-{row}", "age": row} for row in range(3)]
        (inbox / f"{number}.json").write_text("\n".join(map(json.dumps, rows)))

    def run(checkpoint: str) -> None:
        rows = spark.readStream.schema("name string, age int").option("maxFilesPerTrigger", 1)
        writer = rows.json(str(inbox)).writeStream.format("omnigraph").queryName("inbox")
        writer = writer.options(node="Person", durability="process")
        writer = writer.option("checkpointLocation", str(tmp_path / checkpoint))
        writer.trigger(availableNow=True).start(graph.uri).awaitTermination()

    put(0)
    put(1)
    run("one")
    put(2)
    run("one")
    numbers = [commit.properties.get("txn_batch_id") for commit in graph.list_commits(limit=3)]
    assert numbers == ["2", "1", "0"]
    assert graph.snapshot().entry("node:Person").row_count == 2 + 9
    with pytest.raises(Exception, match="from a new checkpoint"):
        run("two")
    assert graph.snapshot().entry("node:Person").row_count == 2 + 9


@pytest.mark.spark
def test_an_export_on_spark_is_the_local_one(
    spark: SparkSession, graph: Graph, tmp_path: Path
) -> None:
    target = ReadTarget.branch("main")
    local = graph.export(tmp_path / "local", engine="local", target=target)
    on_spark = graph.export(tmp_path / "spark", engine="auto", spark=spark, target=target)
    assert (local.engine, on_spark.engine) == ("local", "spark")
    assert local.files == on_spark.files
    for file in local.files:
        assert (tmp_path / "local" / file.path).read_bytes() == (
            tmp_path / "spark" / file.path
        ).read_bytes()
