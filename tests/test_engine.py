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
from omnigraph.engine.memory import available_bytes
from omnigraph.engine.weigh import Weight, decide, weigh
from omnigraph.graph import Graph, ReadTarget
from omnigraph.names import UnknownChoiceError
from omnigraph.write.load.options import LoadOptionsError
from omnigraph.write.load.result import LoadResult

HEAD = ReadTarget.branch("main")
ALL = "query q() { match { $a: A } return { $a.n } }"
AUTO, LOCAL, SPARK = EngineChoice.AUTO, EngineChoice.LOCAL, EngineChoice.SPARK


class Engine:
    name = "spark"

    def __init__(self, problem: str | None = None, *, runs: bool = False) -> None:
        self._problem = problem
        self._runs = runs

    def problem(self) -> str | None:
        return self._problem

    def is_running(self) -> bool:
        return self._runs


@pytest.fixture
def large(tmp_path: Path) -> Path:
    path = tmp_path / "in.jsonl"
    path.write_bytes(b"x" * 1_000)
    return path


@pytest.mark.parametrize(
    ("environment", "problem", "chosen", "reason"),
    [
        ({}, None, LOCAL, "the input, about 1000 bytes, fits into memory"),
        ({"OMNIGRAPH_SPARK_MIN_BYTES": "999"}, None, SPARK, "more than 999 bytes"),
        ({"OMNIGRAPH_SPARK_MIN_BYTES": "999"}, "no Java", LOCAL, "cannot run here: no Java"),
        ({"OMNIGRAPH_SPARK_MIN_BYTES": "1000"}, None, LOCAL, "at most 1000 bytes"),
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
    there = (
        frame,
        {"table": "people"},
        {"format": "delta", "path": "x"},
        {"path": "x.csv", "map": {"name": "upper(who)"}},
        {"path": "x", "schema": "a int"},
    )
    for table in there:
        assert choose(AUTO, {"Person": table}, environment={}).engine is SPARK
    here = (pa.table({"a": [1]}), {"format": "csv", "path": "x.csv"}, [{"a": 1}])
    for table in here:
        assert choose(AUTO, {"Person": table}, environment={}).engine is LOCAL
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
            graph.load({"A": {"format": "delta", "path": "a"}}, mode="append")


MIB, GIB = 1 << 20, 1 << 30


@pytest.mark.parametrize(
    ("weight", "left", "runs", "is_too_much", "reason"),
    [
        (Weight(10 * GIB), 24 * GIB, False, False, "about 10.0 GiB, fits into memory"),
        (Weight(13 * GIB), 24 * GIB, False, True, "does not fit into 24.0 GiB of memory"),
        (Weight(72 * MIB, is_in_memory=True), GIB, True, False, "about 72 MiB, fits into memory"),
        (Weight(GIB, is_in_memory=True), GIB, False, True, "about 1.0 GiB, does not fit"),
        (Weight(255 * MIB), GIB, True, False, "fits into memory"),
        (Weight(257 * MIB), GIB, True, True, "a session of Spark runs already"),
        (Weight(257 * MIB), GIB, False, False, "fits into memory"),
    ],
)
def test_what_fits_into_memory_stays_here_unless_a_session_runs_already(
    *, weight: Weight, left: int, runs: bool, is_too_much: bool, reason: str
) -> None:
    verdict = decide(weight, least=None, memory=lambda: left, is_running=lambda: runs)
    assert verdict.is_too_much is is_too_much
    assert reason in verdict.reason


def test_the_weight_of_an_input_is_that_of_its_rows(tmp_path: Path) -> None:
    rows = pa.table({"a": pa.array([1] * 1000, pa.int64())})
    assert weigh({"A": rows, "B": rows.to_pandas()}) == Weight(16_000, is_in_memory=True)
    for name in ("a.csv", "a.csv.gz", "a.parquet", "b/c=1/a.jsonl"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x" * 100)
    for name, nbytes in (("a.csv", 100), ("a.csv.gz", 500), ("a.parquet", 500), ("b", 100)):
        assert weigh({"A": tmp_path / name, "B": rows}) == Weight(8_000 + nbytes)
        assert weigh({"A": {"path": str(tmp_path / name)}}) == Weight(nbytes)
    assert weigh(str(tmp_path / "b/*/*.jsonl")) == Weight(100)
    assert weigh({"A": "s3://far/away.csv", "B": "no.csv"}) == Weight(0)


def test_a_table_in_memory_is_no_work_for_a_configured_cluster() -> None:
    environment = {"SPARK_REMOTE": "sc://host"}
    table = {"A": pa.table({"a": [1]})}
    assert choose(AUTO, table, environment=environment).engine is LOCAL
    assert choose(AUTO, table | {"B": "b.csv"}, environment=environment).engine is SPARK


def test_the_result_says_why_its_engine_was_chosen(tmp_path: Path) -> None:
    with Graph.init(str(tmp_path / "graph"), "node A { n: I32? }") as graph:
        table = {"A": pa.table({"n": pa.array([1], pa.int32())})}
        result = graph.load(table, mode="append")
        assert result.engine_reason == "the input, about 4 bytes, fits into memory"
        assert result.to_json()["engine_reason"] == result.engine_reason
        asked = graph.load(table, mode="append", engine="local")
        assert asked.engine_reason == "the caller asked for it"


def machine(root: Path, **files: str) -> Path:
    for name, content in files.items():
        path = root / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return root


def test_memory_is_what_the_machine_and_the_container_leave(tmp_path: Path) -> None:
    meminfo = "MemTotal: 99 kB\nMemAvailable:    4096 kB\n"
    plain = machine(tmp_path / "plain", proc__meminfo=meminfo)
    assert available_bytes(plain) == 4 * MIB
    second = machine(
        tmp_path / "second",
        proc__meminfo=meminfo,
        proc__self__cgroup="0::/pods/one\n",
        sys__fs__cgroup__memory_dot_max="max\n",
        sys__fs__cgroup__memory_dot_current="5\n",
        sys__fs__cgroup__pods__memory_dot_max="3000000\n",
        sys__fs__cgroup__pods__memory_dot_current="2500000\n",
        sys__fs__cgroup__pods__memory_dot_stat="anon 1\ninactive_file 500000\n",
    )
    assert available_bytes(second) == 1_000_000
    first = machine(
        tmp_path / "first",
        proc__meminfo=meminfo,
        proc__self__cgroup="7:memory:/docker/id\n3:cpu:/\n",
        sys__fs__cgroup__memory__memory_dot_limit_in_bytes="2000000\n",
        sys__fs__cgroup__memory__memory_dot_usage_in_bytes="500000\n",
    )
    assert available_bytes(first) == 1_500_000
    unlimited = machine(
        tmp_path / "unlimited",
        proc__meminfo=meminfo,
        proc__self__cgroup="7:memory:/\n",
        sys__fs__cgroup__memory__memory_dot_limit_in_bytes="9223372036854771712\n",
        sys__fs__cgroup__memory__memory_dot_usage_in_bytes="500000\n",
    )
    assert available_bytes(unlimited) == 4 * MIB
    assert available_bytes(tmp_path / "nothing") > 0


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
