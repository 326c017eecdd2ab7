"""Which engine a load takes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from omnigraph import engine
from omnigraph.changes.selection import Selection
from omnigraph.engine import (
    EngineChoice,
    EngineDeclinedError,
    EngineMissingError,
    LoadRequest,
    choose,
)
from omnigraph.graph import Graph, ReadTarget
from omnigraph.names import UnknownChoiceError
from omnigraph.write.load.options import LoadOptionsError
from omnigraph.write.load.result import LoadResult

HEAD = ReadTarget.branch("main")
ALL = "query q() { match { $a: A } return { $a.n } }"
AUTO, LOCAL, SPARK = EngineChoice.AUTO, EngineChoice.LOCAL, EngineChoice.SPARK


class Engine:
    name = "spark"

    def __init__(self, problem: str | None = None) -> None:
        self._problem = problem

    def problem(self) -> str | None:
        return self._problem


@pytest.fixture
def large(tmp_path: Path) -> Path:
    path = tmp_path / "in.jsonl"
    path.write_bytes(b"x" * 1_000)
    return path


@pytest.mark.parametrize(
    ("environment", "problem", "chosen", "reason"),
    [
        ({}, None, LOCAL, ""),
        ({"OMNIGRAPH_SPARK_MIN_BYTES": "999"}, None, SPARK, "more than 999 bytes"),
        ({"OMNIGRAPH_SPARK_MIN_BYTES": "999"}, "no Java", LOCAL, "cannot run here: no Java"),
        ({"OMNIGRAPH_SPARK_MIN_BYTES": "1000"}, None, LOCAL, ""),
        ({"OMNIGRAPH_SPARK_MASTER": "local[2]"}, None, SPARK, "OMNIGRAPH_SPARK_MASTER is set"),
        ({"SPARK_REMOTE": "sc://host"}, None, SPARK, "SPARK_REMOTE is set"),
    ],
)
def test_auto_goes_by_size_and_by_what_is_configured(
    *,
    large: Path,
    monkeypatch: pytest.MonkeyPatch,
    environment: dict[str, str],
    problem: str | None,
    chosen: EngineChoice,
    reason: str,
) -> None:
    monkeypatch.setitem(engine._engines, "spark", Engine(problem))
    for data in (large, str(large.parent / "*.jsonl"), {"Person": [large]}):
        found = choose(AUTO, data, environment=environment)
        assert found.engine is chosen
        assert reason in found.reason


def test_tables_of_spark_and_descriptions_of_sources_go_to_spark() -> None:
    frame = type("DataFrame", (), {"__module__": "pyspark.sql.classic.dataframe"})()
    for table in (frame, {"format": "csv", "path": "x.csv"}):
        assert choose(AUTO, {"Person": table}, environment={}).engine is SPARK
    assert choose(AUTO, {"Person": pa.table({"a": [1]})}, environment={}).engine is LOCAL
    assert choose(AUTO, "x.jsonl", session=object(), environment={}).engine is SPARK
    assert choose(LOCAL, {"Person": frame}, environment={}).engine is LOCAL


def test_what_only_this_process_reads_stays_here(tmp_path: Path) -> None:
    with Graph.init(str(tmp_path / "graph"), "node A { n: I32? }") as graph:
        record = b'{"type": "A", "data": {"n": 1}}'
        assert graph.load(record, mode="append").engine == "local"
        with pytest.raises(
            EngineMissingError, match="records in memory are loaded in this process"
        ):
            graph.load(record, mode="append", engine="spark")
        path = tmp_path / "in.json"
        path.write_bytes(record)
        with pytest.raises(LoadOptionsError, match="order_by"):
            graph.load(path, mode="append", engine="local", order_by=["n"])


def test_what_an_engine_declines_is_done_here_unless_only_it_can_read_the_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Declining(Engine):
        def load(self, request: LoadRequest) -> LoadResult:
            raise EngineDeclinedError("spark", f"no thanks, {request.options.mode}")

    monkeypatch.setitem(engine._engines, "spark", Declining())
    path = tmp_path / "in.json"
    path.write_bytes(b'{"type": "A",\n"data": {"n": 1}}')
    with Graph.init(str(tmp_path / "graph"), "node A { n: I32? }") as graph:
        result = graph.load(path, mode="append", engine="spark", reader="compatible")
        assert (result.engine, result.inserted) == ("local", 1)
        with pytest.raises(EngineDeclinedError, match="no thanks, append"):
            graph.load({"A": {"format": "csv", "path": "a.csv"}}, mode="append")


def test_a_size_that_is_no_number_is_refused(large: Path) -> None:
    with pytest.raises(LoadOptionsError, match="OMNIGRAPH_SPARK_MIN_BYTES is 'much'"):
        choose(AUTO, large, environment={"OMNIGRAPH_SPARK_MIN_BYTES": "much"})


def test_tables_may_be_given_by_the_name_of_their_type(tmp_path: Path) -> None:
    with Graph.init(str(tmp_path / "graph"), "node A { k: String @key }\nedge E: A -> A") as graph:
        tables = {"node:A": pa.table({"k": ["x"]}), "e": pa.table({"src": ["x"], "dst": ["x"]})}
        result = graph.load(tables, mode="append")
        assert (result.nodes, result.edges) == ((("A", 1),), (("E", 1),))


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        (lambda g, _: g.branch_merge("draft", engine="sprak"), "engine 'sprak': expected auto,"),
        (lambda g, _: g.optimize(engine="sprak"), "engine 'sprak': expected auto, local, spark"),
        (lambda g, _: list(g.changes_between(HEAD, HEAD, engine="sprak")), "engine 'sprak'"),
        (lambda g, _: list(g.diff(HEAD, HEAD).rows(engine="sprak")), "engine 'sprak'"),
        (lambda g, out: g.export(out, engine="sprak"), "engine 'sprak'"),
        (lambda g, _: g.load(b"", mode="append", engine="sprak"), "engine 'sprak'"),
        (lambda g, _: Graph.open(g.uri, mode="ro"), "mode 'ro': expected read_write, read_only"),
        (lambda g, _: Graph.open(g.uri, durability="fast"), "durability 'fast': expected full"),
        (lambda g, out: Graph.init(out, "node A", durability="fast"), "durability 'fast'"),
        (lambda *_: Selection.of(ops=["insrt"]), "operation 'insrt': expected insert, update"),
        (lambda *_: Selection.of(kinds=["nodes"]), "kind of entity 'nodes': expected node, edge"),
        (lambda g, out: g.query(ALL).write(out, "csv"), "file format 'csv': expected arrow"),
    ],
)
def test_an_unknown_choice_is_refused_with_those_that_are_known(
    tmp_path: Path, call: Callable[[Graph, Path], object], problem: str
) -> None:
    with Graph.init(str(tmp_path / "graph"), "node A { n: I32? }") as graph:
        graph.branch_create("draft")
        with pytest.raises(UnknownChoiceError, match=problem):
            call(graph, tmp_path / "out")


def test_a_mode_may_be_given_as_text(tmp_path: Path) -> None:
    uri = str(tmp_path / "graph")
    Graph.init(uri, "node A { n: I32? }").close()
    with Graph.open(uri, mode="read_write") as graph:
        assert graph.load(b'{"type": "A", "data": {"n": 1}}', mode="append").commit is not None
