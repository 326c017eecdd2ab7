"""Names in Spark SQL: views of all types of a graph."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from omnigraph import Graph
from omnigraph.schema import compile_schema
from omnigraph.spark import AttachError, attach, detach
from omnigraph.spark.attach import view_names
from omnigraph.spark.failures import SparkJobError, SparkWorkersError, failure_of
from omnigraph.spark.source.options import SourceOptionError
from support.terminal import Terminal

SCHEMA = """
node Person { name: String @key  age: I32? }
node Likes { note: String @key }
edge Knows: Person -> Person { since: Date? }
edge Likes: Person -> Likes
"""
LINES = b"""{"type": "Person", "data": {"name": "ann", "age": 30}}
{"type": "Person", "data": {"name": "bob"}}
{"type": "Likes", "data": {"note": "tea"}}
{"edge": "Knows", "from": "ann", "to": "bob", "data": {"since": "2021-03-04"}}
{"edge": "Likes", "from": "ann", "to": "tea"}"""
EVE = b'{"type": "Person", "data": {"name": "eve"}}'
FRIENDS = "SELECT p.name FROM og_Person p JOIN og_Knows k ON k.src = p.id"


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with Graph.init(str(tmp_path / "people.omni"), SCHEMA, durability="process") as made:
        made.load(LINES, mode="append")
        yield made


@pytest.fixture(autouse=True)
def clean(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "spark" in request.fixturenames:
        detach(request.getfixturevalue("spark"))


def names(spark: SparkSession, view: str = "og_Person") -> list[str]:
    return sorted(row["name"] for row in spark.table(view).select("name").collect())


def test_every_type_is_a_view_of_one_commit(spark: SparkSession, graph: Graph) -> None:
    made = attach(spark, graph.uri)
    assert made == ("og_node_Likes", "og_Person", "og_Knows", "og_edge_Likes")
    assert [row["name"] for row in spark.sql(FRIENDS).collect()] == ["ann"]
    graph.load(EVE, mode="append")
    assert names(spark) == ["ann", "bob"], "the views stay at the commit that attach saw"
    attach(spark, graph.uri)
    assert names(spark) == ["ann", "bob", "eve"]


def test_views_of_a_branch_and_of_a_moment(spark: SparkSession, graph: Graph) -> None:
    graph.tag_create("first")
    graph.branch_create("draft")
    graph.load(EVE, mode="append", branch="draft")
    attach(spark, graph.uri, "draft_", branch="draft")
    attach(spark, graph.uri, "old_", at="first")
    assert names(spark, "draft_Person") == ["ann", "bob", "eve"]
    assert names(spark, "old_Person") == ["ann", "bob"]
    assert set(detach(spark, "draft_")) == {
        "draft_Person", "draft_Knows", "draft_node_Likes", "draft_edge_Likes",
    }  # fmt: skip
    assert names(spark, "old_Person") == ["ann", "bob"]
    detach(spark, "old_")


def test_views_that_follow_show_the_head_each_time(spark: SparkSession, graph: Graph) -> None:
    attach(spark, graph.uri, follow=True)
    assert names(spark) == ["ann", "bob"]
    graph.load(EVE, mode="append")
    assert names(spark) == ["ann", "bob", "eve"]
    graph.apply_schema(SCHEMA.replace("age: I32?", "age: I32?  city: String?"))
    with pytest.raises(Exception, match="columns have changed since: attach or read it again"):
        names(spark)


def test_global_views_are_seen_by_other_sessions(spark: SparkSession, graph: Graph) -> None:
    made = attach(spark, graph.uri, "everywhere_", scope="global")
    assert "global_temp.everywhere_Person" in made
    assert names(spark.newSession(), "global_temp.everywhere_Person") == ["ann", "bob"]
    assert detach(spark, "everywhere_") == made
    assert detach(spark, "everywhere_") == ()


def test_detaching_leaves_other_views(spark: SparkSession, graph: Graph) -> None:
    attach(spark, graph.uri)
    spark.range(1).createOrReplaceTempView("og_mine")
    detach(spark)
    left = [view.name for view in spark.catalog.listTables() if view.name.startswith("og_")]
    assert left == ["og_mine"]
    spark.catalog.dropTempView("og_mine")


def test_a_view_has_the_columns_that_were_named(spark: SparkSession, graph: Graph) -> None:
    attach(spark, graph.uri, columns={"Knows": ["dst", "src"]})
    assert spark.table("og_Knows").columns == ["dst", "src"]
    with pytest.raises(AttachError, match="names no type of this graph: Nobody"):
        attach(spark, graph.uri, columns={"Nobody": ["id"]})


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"prefix": "a-b_"}, "a prefix has letters, digits"),
        ({"prefix": ""}, "a prefix has letters, digits"),
        ({"scope": "both"}, "scope is 'session' or 'global', found 'both'"),
        ({"follow": True, "at": "first"}, "give one of them"),
    ],
)
def test_what_means_nothing_is_refused(
    spark: SparkSession, graph: Graph, arguments: dict[str, object], sentence: str
) -> None:
    with pytest.raises(AttachError, match=sentence):
        attach(spark, graph.uri, **arguments)  # type: ignore[arg-type] # wrong on purpose


def test_types_that_spark_cannot_tell_apart_are_refused() -> None:
    schema = "node AA { k: String @key }\nnode Aa { k: String @key }"
    catalog = compile_schema(schema, domain="01J" + "0" * 23).catalog
    with pytest.raises(AttachError, match="would both be the view"):
        view_names(catalog, "og_")


def test_a_schema_of_a_reader_names_columns(spark: SparkSession, graph: Graph) -> None:
    reader = spark.read.format("omnigraph").option("edge", "Knows")
    frame = reader.schema("dst STRING, src STRING").load(graph.uri)
    assert [row.asDict() for row in frame.collect()] == [{"dst": "bob", "src": "ann"}]
    with pytest.raises(Exception, match=r"has the columns .*leave `\.schema"):
        reader.schema("dst INT").load(graph.uri).collect()


_ON_CONNECT = """\
import os, sys
from omnigraph import Graph
from omnigraph.spark import attach, detach, get_spark
spark = get_spark(remote="local[2]")
os.chdir(sys.argv[1])
made = attach(spark, "people.omni")
assert [row["name"] for row in spark.sql(sys.argv[2]).collect()] == ["ann"]
with Graph.open("people.omni", durability="process") as graph:
    graph.load(sys.argv[3].encode(), mode="append")
assert spark.sql("SELECT * FROM og_Person").count() == 2
attach(spark, "people.omni", follow=True)
assert spark.sql("SELECT * FROM og_Person").count() == 3
assert detach(spark) == made
assert not [view for view in spark.catalog.listTables() if view.name.startswith("og_")]
try:
    spark.read.format("omnigraph").option("node", "Person").load("nowhere.omni").count()
except Exception as error:
    assert "is relative: `nowhere.omni`" in str(error), error
else:
    raise AssertionError("a relative path was read")
print("attached")
"""


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(find_spec("grpc_status") is None, reason="grpcio-status is not installed")
def test_views_are_made_on_spark_connect(graph: Graph) -> None:
    folder = str(Path(graph.uri).parent)
    run = subprocess.run(
        [sys.executable, "-c", _ON_CONNECT, folder, FRIENDS, EVE.decode()],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "attached" in run.stdout, run.stderr[-4_000:]


# -- tables of a catalog --------------------------------------------------------------------------


def test_a_table_of_a_catalog_is_refused_with_what_to_do(spark: SparkSession, graph: Graph) -> None:
    statement = "CREATE TABLE people USING omnigraph OPTIONS (path '{}', node 'Person')"
    with pytest.raises(Exception, match=r"use `omnigraph\.spark\.attach") as caught:
        spark.sql(statement.format(graph.uri))
    assert "checkpointLocation" not in str(caught.value)


def lenient_source(marks: str) -> type[DataSource]:
    """Return a source that takes any option, and notes those of each read in a file."""

    class Reader(DataSourceReader):
        def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
            yield (1,)

    class Source(DataSource):
        @classmethod
        def name(cls) -> str:
            return "guard_lenient"

        def schema(self) -> str:
            return "n int"

        def reader(self, schema: StructType) -> DataSourceReader:
            Path(marks).write_text(" ".join(sorted(self.options)))
            return Reader()

    return Source


def test_spark_does_not_hand_options_of_a_table_back(spark: SparkSession, tmp_path: Path) -> None:
    """A test of Spark: when it fails, `CREATE TABLE … USING omnigraph` can be allowed."""
    marks = tmp_path / "marks"
    spark.dataSource.register(lenient_source(str(marks)))
    place = tmp_path / "somewhere"
    spark.sql(f"CREATE TABLE lent USING guard_lenient OPTIONS (path '{place}', node 'P')")
    try:
        spark.sql("SELECT * FROM lent").collect()
        assert {"path", "node"}.isdisjoint(marks.read_text().split())
    finally:
        spark.sql("DROP TABLE lent")


def test_a_temporary_view_of_the_format_works(spark: SparkSession, graph: Graph) -> None:
    options = f"OPTIONS (path '{graph.uri}', node 'Person')"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW og_mine USING omnigraph {options}")
    assert names(spark, "og_mine") == ["ann", "bob"]
    spark.catalog.dropTempView("og_mine")


# -- failures -------------------------------------------------------------------------------------


def test_an_error_of_the_source_is_shown_without_its_frames(
    spark: SparkSession, graph: Graph
) -> None:
    reader = spark.read.format("omnigraph").option("node", "Nobody")
    with pytest.raises(Exception, match="names no node type of this graph") as caught:
        reader.load(graph.uri)
    assert "tables.py" not in str(caught.value)


def test_a_relative_path_says_where_it_was_looked_for(spark: SparkSession) -> None:
    reader = spark.read.format("omnigraph").option("node", "Person")
    with pytest.raises(Exception, match=r"is relative: `nowhere\.omni` was looked for below /"):
        reader.load("nowhere.omni")


class FromSparkError(Exception):
    __module__ = "pyspark.errors.exceptions.captured"


@pytest.mark.parametrize(
    ("text", "kind", "sentence"),
    [
        (
            "Job aborted\nTraceback\nomnigraph.spark.types.MomentOutOfRangeError: too far away",
            SparkJobError,
            "too far away (in the Spark job 'reading')",
        ),
        (
            "An exception\nModuleNotFoundError: No module named 'omnigraph'",
            SparkWorkersError,
            "set PYSPARK_PYTHON to an interpreter that has it",
        ),
        ("[DATA_SOURCE_NOT_FOUND] no: omnigraph", SparkWorkersError, "PYSPARK_PYTHON"),
        ("something else", SparkJobError, "something else (in the Spark job 'reading')"),
    ],
)
def test_failures_of_spark_are_one_sentence(text: str, kind: type, sentence: str) -> None:
    found = failure_of(FromSparkError(text), "reading")
    assert isinstance(found, kind)
    assert sentence in str(found)
    assert failure_of(ValueError(text), "reading") is None


# -- command line ---------------------------------------------------------------------------------


@pytest.fixture
def omnigraph(capsys: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal(capsys)


def test_the_command_answers_over_the_same_views(
    spark: SparkSession, graph: Graph, omnigraph: Terminal
) -> None:
    del spark  # The command finds the session that is active.
    graph.branch_create("draft")
    graph.load(EVE, mode="append", branch="draft")
    ask = "SELECT name, age FROM og_Person ORDER BY name"
    found = omnigraph("sql", graph.uri, "-e", ask, "--json")
    assert found.code == 0, found.err
    rows = json.loads(found.out)["rows"]
    assert rows == [{"name": "ann", "age": 30}, {"name": "bob", "age": None}]
    count = "SELECT count(*) AS n, max(since) AS day FROM og_Person, og_Knows"
    found = omnigraph("sql", graph.uri, "-e", count, "--branch", "draft", "--format", "csv")
    assert found.out == "n,day\n3,2021-03-04\n"


def test_a_statement_that_is_wrong_is_one_sentence(
    spark: SparkSession, graph: Graph, omnigraph: Terminal
) -> None:
    del spark
    found = omnigraph("sql", graph.uri, "-e", "SELECT x FROM og_Nobody")
    assert found.code == 1
    assert "og_Nobody" in found.err
    assert "Traceback" not in found.err
    assert "JVM" not in found.err


# -- options of writes ----------------------------------------------------------------------------


def test_the_last_of_several_rows_of_one_id_wins_by_a_column(
    spark: SparkSession, graph: Graph
) -> None:
    rows = "SELECT 'eve' AS name, 40 AS age UNION ALL SELECT 'eve', 42 UNION ALL SELECT 'eve', 41"
    writer = spark.sql(rows).write.format("omnigraph").mode("append").option("node", "Person")
    writer = writer.option("graphMode", "merge")
    with pytest.raises(Exception, match="eve"):
        writer.save(graph.uri)
    writer.option("onDuplicate", "last").option("orderBy", "age").save(graph.uri)
    found = graph.query('query q() { match { $p: Person { name: "eve" } } return { $p.age } }')
    assert found.json_rows() == [{"p.age": 42}]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"onDuplicate": "any"},
            "`onDuplicate` is error or last or first or combine, found 'any'",
        ),
        ({"onDuplicate": "first"}, "needs `orderBy`: rows of a frame have no order"),
        ({"onDuplicate": "last", "orderBy": "x"}, "names no column of the frame: `x`"),
        ({"orderBy": "name"}, "`orderBy` is for `onDuplicate` `last`, `first` and `combine`"),
        ({"edges": "keep"}, "`edges` is match or add, found 'keep'"),
        ({"missing": "empty"}, "`missing` is keep or null or error, found 'empty'"),
        ({"nullCells": "drop"}, "`nullCells` is null or keep, found 'drop'"),
        ({"missing": "error"}, "the frame has no column age"),
    ],
)
def test_options_of_a_write_are_checked(
    spark: SparkSession, graph: Graph, options: dict[str, str], sentence: str
) -> None:
    rows = spark.sql("SELECT 'eve' AS name").write.format("omnigraph").mode("append")
    with pytest.raises(Exception, match=sentence.replace("`", ".")):
        rows.options(node="Person", graphMode="merge", **options).save(graph.uri)


def test_edges_that_are_written_again_are_found_or_added(spark: SparkSession, graph: Graph) -> None:
    stored = graph.snapshot().entry("edge:Knows").row_count
    attach(spark, graph.uri)
    rows = spark.table("og_Knows").select("src", "dst", "since").write.format("omnigraph")
    rows = rows.mode("append")
    rows = rows.option("edge", "Knows").option("graphMode", "merge")
    rows.save(graph.uri)
    assert graph.snapshot().entry("edge:Knows").row_count == stored
    rows.option("edges", "add").save(graph.uri)
    assert graph.snapshot().entry("edge:Knows").row_count == 2 * stored


def test_a_branch_that_does_not_exist_is_an_error_of_ours(
    spark: SparkSession, graph: Graph
) -> None:
    with pytest.raises(Exception, match="nowhere"):
        attach(spark, graph.uri, branch="nowhere")
    with pytest.raises(SourceOptionError, match="names no column"):
        attach(spark, graph.uri, columns={"Knows": ["sinc"]})
