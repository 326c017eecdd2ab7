"""Results in every form, and how they say they were made."""

from __future__ import annotations

import datetime
import json
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from omnigraph.errors import LibraryMissingError
from omnigraph.graph import Graph, QueryResult, ReadTarget
from omnigraph.query.params import ParamsError
from omnigraph.query.select import QueryKindError, QuerySelectionError
from omnigraph.syntax import SourceError

SCHEMA = """\
node T {
    key: String @key
    i: I32?
    j: I64?
    u: U64?
    f: F32?
    g: F64?
    b: Bool?
    d: Date?
    t: DateTime?
    l: [Date]?
    v: Vector(2)?
}
"""
ROW = {
    "key": "a",
    "i": -1,
    "j": 2**62,
    "u": 2**60,
    "f": 0.1,
    "g": 0.5,
    "b": True,
    "d": "2026-03-06",
    "t": "2026-03-06T12:00:00.125Z",
    "l": ["2026-03-06"],
    "v": [1.0, 0.25],
}
COLUMNS = ", ".join(f"$t.{name} as {name}" for name in ROW)
ALL = f"query all() {{ match {{ $t: T }} return {{ $t, {COLUMNS} }} order {{ $t.key }} }}"


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    graph = Graph.init(tmp_path_factory.mktemp("result") / "g", SCHEMA, durability="process")
    lines = [{"type": "T", "data": ROW}, {"type": "T", "data": {"key": "b"}}]
    graph.load("\n".join(json.dumps(line) for line in lines).encode(), mode="append")
    return graph


@pytest.fixture(scope="module")
def result(graph: Graph) -> QueryResult:
    return graph.query(ALL)


def test_json_rows_follow_the_mapping_of_types(result: QueryResult) -> None:
    first, second = result.json_rows()
    assert first == {
        "t": "2026-03-06T12:00:00.125Z",
        **{k: v for k, v in ROW.items() if k != "t"},
    } | {"f": 0.10000000149011612}
    assert list(second.values()).count(None) == len(ROW) - 1
    assert list(first) == list(dict.fromkeys(["t", *ROW]))


def test_the_envelope_says_what_was_read(graph: Graph, result: QueryResult) -> None:
    envelope = result.envelope()
    assert list(envelope) == [
        "query_name",
        "target",
        "row_count",
        "columns",
        "rows",
        "graph_commit_id",
    ]
    assert envelope["target"] == {"branch": "main", "snapshot": None}
    assert envelope["row_count"] == 2
    assert envelope["graph_commit_id"] == graph.head_commit_id_for_branch()
    assert json.dumps(envelope)


def test_a_commit_is_shown_as_snapshot(graph: Graph) -> None:
    commit = graph.head_commit_id_for_branch()
    envelope = graph.query(ALL, target=ReadTarget.commit(commit)).envelope()
    assert envelope["target"] == {"branch": None, "snapshot": commit}


def test_arrow_forms_have_the_types_of_the_columns(result: QueryResult) -> None:
    table = result.to_arrow()
    assert table.schema.field("d").type == pa.date32()
    assert table.schema.field("v").type == pa.list_(pa.float32(), 2)
    assert pa.table(result).equals(table)
    assert sum(batch.num_rows for batch in result.batches(1)) == 2
    assert len(result) == 2


def test_python_values_keep_the_time_of_day(result: QueryResult) -> None:
    first, second = result.to_pylist()
    moment = datetime.datetime(2026, 3, 6, 12, 0, 0, 125_000, tzinfo=datetime.UTC)
    assert first["t"] == moment
    assert first["d"] == datetime.date(2026, 3, 6)
    assert second["l"] is None


def test_pandas_gets_one_column_per_header(result: QueryResult) -> None:
    pytest.importorskip("pandas")
    frame = result.to_pandas()
    assert list(frame["key"]) == ["a", "b"]


def test_no_rows_keep_their_columns(graph: Graph) -> None:
    found = graph.query(
        'query q() { match { $t: T {key: "z"} } return { $t.key, count($t) as n } }'
    )
    assert found.column_names == ["t.key", "n"]
    assert found.json_rows() == []
    assert found.to_arrow().num_rows == 0


def test_an_aggregate_over_no_rows_keeps_its_header(graph: Graph) -> None:
    found = graph.query('query q() { match { $t: T {key: "z"} } return { count($t), sum($t.i) } }')
    assert found.column_names == ["t", "t.i"]
    assert found.json_rows() == [{"t": 0, "t.i": None}]


def test_now_as_an_inline_property_is_a_filter(graph: Graph) -> None:
    assert graph.query("query q() { match { $t: T { t: now() } } return { $t } }").json_rows() == []


def test_a_library_that_is_not_installed_is_named(
    result: QueryResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(LibraryMissingError, match="polars") as caught:
        result.to_polars()
    assert caught.value.hint == "pip install polars"


def test_one_query_of_several_is_picked_by_name(graph: Graph) -> None:
    text = f'{ALL} query none() {{ match {{ $t: T {{key: "z"}} }} return {{ $t }} }}'
    assert graph.query(text, "none").row_count == 0
    with pytest.raises(QuerySelectionError):
        graph.query(text)


def test_a_mutation_is_no_read(graph: Graph) -> None:
    with pytest.raises(QueryKindError, match="mutate"):
        graph.query('query m() { insert T { key: "x" } }')


def test_each_read_sees_one_commit(tmp_path: Path) -> None:
    graph = Graph.init(tmp_path / "g", SCHEMA, durability="process")
    text = "query q() { match { $t: T } return { $t } order { $t.key } }"
    graph.load(b'{"type": "T", "data": {"key": "a"}}', mode="append")
    first = graph.head_commit_id_for_branch()
    graph.branch_create("side")
    graph.load(b'{"type": "T", "data": {"key": "b"}}', mode="append", branch="side")
    graph.load(b'{"type": "T", "data": {"key": "c"}}', mode="append")

    def keys(target: ReadTarget) -> list[object]:
        return [row["t"] for row in graph.query(text, target=target).json_rows()]

    assert keys(ReadTarget.commit(first)) == ["a"]
    assert keys(ReadTarget.branch("side")) == ["a", "b"]
    assert keys(ReadTarget.branch("main")) == ["a", "c"]


# -- explain and profile --------------------------------------------------------------------------


def test_explain_runs_nothing_and_names_what_is_pushed(graph: Graph) -> None:
    text = 'query q() { match { $t: T {key: "a"}  $t.l contains $t.d } return { $t.i } }'
    explained = graph.query(text, explain=True)
    assert explained.row_count == 0
    [scan] = explained.explanation()["plan"]  # type: ignore[misc] # JSON
    assert scan["pushed_filters"] == ['t.key = "a"']
    assert scan["residual_filters"] == ["t.l has t.d"]
    assert scan["estimated_rows"] == 1
    assert "profile" not in explained.explanation()


def test_profile_measures_rows_and_time_beside_the_answer(graph: Graph) -> None:
    profiled = graph.query(ALL, profile=True)
    assert profiled.row_count == 2
    shape = profiled.explanation()
    scan, returned = shape["profile"]  # type: ignore[misc] # JSON
    assert scan["rows"] == returned["rows"] == 2
    assert scan["elapsed_ms"] >= 0
    assert "NodeScan t: T" in profiled.explanation_text()


def test_unused_columns_are_not_read(graph: Graph) -> None:
    text = "query q() { match { $t: T  $t.l contains $t.d } return { $t.i } }"
    [scan, _] = graph.query(text, profile=True).explanation()["profile"]  # type: ignore[misc] # JSON
    assert scan["columns"] == ["d", "i", "l"]


def test_days_outside_of_the_years_of_python_are_texts(tmp_path: Path) -> None:
    graph = Graph.init(tmp_path / "g", SCHEMA, durability="process")
    rows = [
        {"key": "a", "d": "0001-01-01", "t": "9999-12-31T23:59:59.999Z", "l": ["2026-03-06"]},
        {"key": "b", "d": "-0044-03-15", "t": 2**63 - 1, "l": [2**31 - 1, "2026-03-06"]},
        {"key": "c"},
    ]
    lines = (json.dumps({"type": "T", "data": row}) for row in rows)
    graph.load("\n".join(lines).encode(), mode="append")
    found = graph.query(
        "query q() { match { $t: T } return { $t.d as d, $t.t as t, $t.l as l } order { $t.key } }"
    )
    first, second, third = found.to_pylist()
    assert first["d"] == datetime.date(1, 1, 1)
    assert first["t"] == datetime.datetime(9999, 12, 31, 23, 59, 59, 999_000, datetime.UTC)
    assert first["l"] == [datetime.date(2026, 3, 6)]
    assert second == found.json_rows()[1]
    assert second["d"] == "-0044-03-15"
    assert third == {"d": None, "t": None, "l": None}


def test_rows_of_python_values_are_those_of_arrow(graph: Graph) -> None:
    """Column by column they are made faster, and are the same."""
    result = graph.query(ALL)
    slow = result.to_arrow().to_pylist()
    for fast, expected in zip(result.to_pylist(), slow, strict=True):
        assert fast.keys() == expected.keys()
        for name in fast.keys() - {"t"}:
            # A 64-bit date of Arrow has lost its time: `t` is tested elsewhere.
            assert type(fast[name]) is type(expected[name]), name
            assert fast[name] == expected[name], name


def test_all_properties_under_an_alias_are_one_object(graph: Graph, tmp_path: Path) -> None:
    result = graph.query("match { $t: T } return { $t.* as t, $t.key } order { $t.key }")
    names = [name for name in ROW if name != "v"]
    assert result.query_name == ""
    assert result.column_names == ["t", "t.key"]
    assert [field.name for field in result.schema.field("t").type] == names
    first, second = result.json_rows()
    assert first["t"] == {name: ROW[name] for name in names} | {"f": 0.10000000149011612}
    assert second["t"] == {name: "b" if name == "key" else None for name in names}
    moment = datetime.datetime(2026, 3, 6, 12, 0, 0, 125_000, datetime.UTC)
    assert result.to_pylist()[0]["t"]["t"] == moment
    assert result.to_pandas()["t"][0]["key"] == "a"
    result.write(tmp_path / "rows.parquet", "parquet")
    stored = pq.read_table(tmp_path / "rows.parquet")["t"]
    assert stored.to_pylist()[0]["t"] == moment


def test_an_undeclared_parameter_is_an_error_or_a_warning(graph: Graph) -> None:
    text = "query q($key: String?) { match { $t: T } return { $t } }"
    with pytest.raises(ParamsError, match="param 'kye': the query declares no such parameter"):
        graph.query(text, params={"kye": "a"})
    found = graph.query(text, params={"kye": "a"}, strict_params=False)
    assert found.warnings == ("param 'kye': the query declares no such parameter",)
    assert found.envelope()["warnings"] == list(found.warnings)
    assert "warnings" not in graph.query(text).envelope()


@pytest.mark.parametrize(
    ("text", "params"),
    [
        ("query q($n: I64) { match { $t: T } return { $t } limit $n }", {"n": -1}),
        ("query q($n: I64?) { match { $t: T } return { $t } limit $n }", {}),
        ("query q($n: I64) { match { $t: T } return { $t } limit 1 offset $n }", {"n": -1}),
    ],
)
def test_a_number_by_parameter_that_is_none_is_refused(
    graph: Graph, text: str, params: dict[str, object]
) -> None:
    with pytest.raises(ParamsError, match=r"param 'n': an? (limit|offset) is a whole number"):
        graph.query(text, params=params)


def test_a_read_alone_has_its_mistakes_at_their_place(graph: Graph) -> None:
    with pytest.raises(SourceError, match="T6"):
        graph.query("match { $t: T } return { $t.nothing }")
    with pytest.raises(QuerySelectionError):
        graph.query("match { $t: T } return { $t }", "named")
