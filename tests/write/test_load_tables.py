"""Typed tables of all kinds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from omnigraph.errors import InvalidInputError
from omnigraph.graph import Graph
from omnigraph.write.rules.violations import KeyConflictError, ValidationError
from support.loads import graph_lines, problem_lines
from support.places import Place

SCHEMA = """
node Person { number: I64 @key  name: String?  born: Date? }
node Note { text: String  pic: Blob? }
edge Knows: Person -> Person { since: DateTime? }
edge About: Note -> Person
"""


@pytest.fixture
def graph(local_place: Place) -> Graph:
    return local_place.init(SCHEMA)


class Capsule:
    """A table of a library that we do not know."""

    def __init__(self, table: pa.Table | pa.RecordBatchReader) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


PEOPLE = pa.table({"number": [1, 2], "name": ["ann", None]})
LINES = ['Person 1 {"name": "ann", "number": 1}', 'Person 2 {"number": 2}']


@pytest.mark.parametrize(
    "table",
    [
        PEOPLE,
        PEOPLE.to_batches()[0],
        PEOPLE.to_pandas(),
        Capsule(PEOPLE),
        pa.table({"name": pa.array(["ann", None]).dictionary_encode(), "number": [1.0, 2.0]}),
        pd.DataFrame({"number": [1, 2], "name": ["ann", None]}, index=["x", "y"]),
    ],
    ids=["table", "batch", "pandas", "capsule", "other types", "pandas with an index"],
)
def test_tables_of_every_kind_are_rows(graph: Graph, table: pa.Table) -> None:
    result = graph.load_tables(nodes={"Person": table}, mode="append")
    assert result.nodes == (("Person", 2),)
    assert graph_lines(graph) == LINES


@pytest.mark.parametrize("is_foreign", [False, True])
def test_an_interrupt_while_rows_are_brought_ends_a_load(graph: Graph, is_foreign: bool) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield from PEOPLE.to_batches()
        raise KeyboardInterrupt

    before = graph.head_commit_id_for_branch()
    rows = pa.RecordBatchReader.from_batches(PEOPLE.schema, batches())
    with pytest.raises(KeyboardInterrupt):
        graph.load_tables(
            nodes={"Person": Capsule(rows) if is_foreign else rows},
            mode="append",
            branch="new",
            from_branch="main",
        )
    assert graph.branch_list() == ["main"]
    assert graph.head_commit_id_for_branch() == before
    assert graph.recovery_status() == []
    graph.load_tables(nodes={"Person": PEOPLE}, mode="append")
    assert graph_lines(graph) == LINES


def test_a_reader_is_read_once(graph: Graph) -> None:
    graph.load_tables(nodes={"Person": PEOPLE.to_reader()}, mode="append")
    assert graph_lines(graph) == LINES


def test_parquet_files_and_folders_of_them_are_rows(graph: Graph, tmp_path: Path) -> None:
    folder = tmp_path / "people"
    folder.mkdir()
    pq.write_table(PEOPLE, folder / "1.parquet")
    pq.write_table(pa.table({"number": [3]}), folder / "2.parquet")
    graph.load_tables(nodes={"Person": folder / "1.parquet"}, mode="append")
    assert graph_lines(graph) == LINES
    graph.load_tables(nodes={"Person": folder}, mode="merge")
    assert graph_lines(graph) == [*LINES, 'Person 3 {"number": 3}']


@pytest.mark.parametrize("ends", [("src", "dst"), ("from", "to")])
def test_edges_name_their_nodes_by_id(graph: Graph, ends: tuple[str, str]) -> None:
    moment = pa.array([0], pa.timestamp("us", "UTC"))
    graph.load_tables(
        nodes={"Person": PEOPLE},
        edges={"knows": pa.table({ends[0]: ["1"], ends[1]: [2], "since": moment})},
        mode="append",
    )
    assert graph_lines(graph)[0] == 'Knows * 1->2 {"since": "1970-01-01T00:00:00.000Z"}'


def test_ids_are_given_in_a_column(graph: Graph) -> None:
    notes = pa.table({"id": ["n1", None], "text": ["a", "b"], "pic": [b"\x01", None]})
    graph.load_tables(nodes={"Note": notes}, mode="append")
    with pytest.raises(KeyConflictError):
        graph.load_tables(nodes={"Note": notes}, mode="append")
    assert [line.split()[1] for line in graph_lines(graph)] == ["*", "n1"]


def test_an_empty_table_empties_its_type_only_when_it_overwrites(graph: Graph) -> None:
    graph.load_tables(nodes={"Person": PEOPLE}, mode="append")
    nobody = PEOPLE.slice(0, 0)
    for mode in ("append", "merge"):
        assert graph.load_tables(nodes={"Person": nobody}, mode=mode).commit is None
    assert graph_lines(graph) == LINES
    assert graph.load_tables(nodes={"Person": nobody}, mode="overwrite").commit is not None
    assert graph_lines(graph) == []


def test_problems_name_their_row_and_column(graph: Graph) -> None:
    with pytest.raises(ValidationError) as caught:
        graph.load_tables(
            nodes={"Person": pa.table({"number": [1, None, 3], "born": ["2020-01-01", "x", "y"]})},
            edges={"About": pa.table({"src": ["n"], "dst": pa.array([None], pa.utf8())})},
            mode="append",
        )
    assert problem_lines(caught.value) == [
        "type V104 [Person.born \"x\"] row 2: Person: property 'born': invalid Date literal 'x'",
        (
            "required V105 [Person.number None] row 2: Person: non-nullable property 'number' has"
            " null or invalid values"
        ),
        "type V104 [Person.born \"y\"] row 3: Person: property 'born': invalid Date literal 'y'",
        "endpoint W109 [About.dst None] row 1: edge 'About' requires field 'dst'",
    ]


def test_problems_of_columns_are_reported_once_per_table(graph: Graph) -> None:
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["number", "number"])
    with pytest.raises(ValidationError) as caught:
        graph.load_tables(
            nodes={"Person": twice, "Note": pa.table({"txt": ["a"]}), "Ghost": PEOPLE},
            edges={"Knows": pa.table({"src": ["a"], "to": ["b"]}), "About": PEOPLE},
            mode="append",
        )
    assert [found.message for found in caught.value.violations] == [
        "unknown node type 'Ghost'",
        "unknown input field 'txt' for 'node:Note'; did you mean 'text'?",
        "duplicate column 'number'",
        "edge 'About' requires field 'from' and field 'to', or 'src' and 'dst'",
        "unknown input field 'number' for 'edge:About'",
        "unknown input field 'name' for 'edge:About'",
        "edge 'Knows' requires field 'from' and field 'to', or 'src' and 'dst'",
        "unknown input field 'src' for 'edge:Knows'",
        "unknown input field 'to' for 'edge:Knows'",
    ]


@pytest.mark.parametrize(("given", "missing"), [("src", "dst"), ("dst", "src"), ("from", "to")])
def test_an_end_that_is_missing_is_named(graph: Graph, given: str, missing: str) -> None:
    with pytest.raises(ValidationError) as caught:
        graph.load({"Knows": pa.table({given: ["1"]})}, mode="append")
    assert str(caught.value) == f"edge 'Knows' requires field '{missing}'"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Persn", "unknown node type 'Persn'; did you mean 'Person'?"),
        ("Know", "unknown edge type 'Know'; did you mean 'Knows'?"),
        ("edge:Person", "unknown edge type 'Person'"),
        ("Zzz", "unknown node type 'Zzz'"),
    ],
)
def test_a_table_of_an_unknown_type_is_told_the_nearest_one(
    graph: Graph, name: str, message: str
) -> None:
    with pytest.raises(ValidationError) as caught:
        graph.load({name: PEOPLE}, mode="append")
    assert str(caught.value) == message


def test_named_levels_of_a_pandas_index_are_columns(graph: Graph) -> None:
    frame = pd.DataFrame({"number": [1, 2], "name": ["ann", None]})
    graph.load({"Person": frame.set_index("number")}, mode="append")
    assert graph_lines(graph) == LINES
    levels = frame.assign(other=["x", "y"]).set_index(["number", "other"])
    levels.index.names = ["number", None]
    graph.load({"Person": levels}, mode="overwrite")
    assert graph_lines(graph) == LINES
    unknown = frame.rename_axis("row")
    with pytest.raises(ValidationError, match="unknown input field 'row'"):
        graph.load({"Person": unknown}, mode="merge")
    doubled = frame.rename_axis("number")
    assert graph.load({"Person": doubled}, mode="merge").unchanged == 2


FAR: dict[str, tuple[pa.Array, str]] = {
    "far seconds": (pa.array([2**62], pa.timestamp("s")), str(2**62)),
    "far days": (pa.array([2**31 - 1], pa.date32()), str(2**31 - 1)),
    "days with hours": (pa.array([90_000_000], pa.date64()), '"1970-01-02T01:00:00.000"'),
    "a zone": (
        pa.array([0], pa.timestamp("us", "Asia/Tokyo")),
        '"1970-01-01T09:00:00.000000+0900"',
    ),
    "not a number": (pa.array([float("nan")]), '"NaN"'),
    "below all numbers": (pa.array([-float("inf")]), '"-Infinity"'),
    "a fraction": (pa.array([Decimal("1.50")]), '"1.50"'),
    "many digits": (pa.array([Decimal(2**70)]), f'"{2**70}"'),
    "a whole number": (pa.array([Decimal("7.00")]), "7"),
    "bytes": (pa.array([b"ab"]), '"base64:YWI="'),
    "far days in a list": (pa.array([[2**31 - 1]], pa.list_(pa.date32())), f"[{2**31 - 1}]"),
}


@pytest.mark.parametrize("kind", FAR)
def test_values_that_json_or_python_cannot_hold_are_shown_and_set_aside(
    graph: Graph, tmp_path: Path, kind: str
) -> None:
    column, shown = FAR[kind]
    table = pa.table({"number": [1], "name": column})
    with pytest.raises(ValidationError) as caught:
        graph.load({"Person": table}, mode="append")
    assert caught.value.violations[0].value == shown
    quarantine = tmp_path / "q"
    graph.load({"Person": table}, mode="append", on_error="quarantine", quarantine=quarantine)
    kept = json.loads((quarantine / "node-Person.jsonl").read_text())
    assert kept["record"]["data"]["name"] == json.loads(shown)


@pytest.mark.parametrize("column", [pa.array([1.5]), pa.array([[1]]), pa.array([b"x"])])
def test_ends_and_ids_of_another_kind_are_refused(graph: Graph, column: pa.Array) -> None:
    with pytest.raises(ValidationError, match="must be a string, got a column of"):
        graph.load_tables(edges={"About": pa.table({"src": column, "dst": ["1"]})}, mode="append")
    with pytest.raises(ValidationError, match="node id must be a string"):
        graph.load_tables(nodes={"Note": pa.table({"id": column, "text": ["1"]})}, mode="append")


def test_numbers_that_stand_for_something_else_are_refused(graph: Graph) -> None:
    months = pd.period_range("2025-01", periods=2, freq="M")
    for frame in (pd.DataFrame({"number": months}), pd.DataFrame({"number": [months[0]] * 2})):
        with pytest.raises(ValidationError, match="got a column of extension"):
            graph.load({"Person": frame}, mode="append")
    with pytest.raises(ValidationError, match="must be a string, got a column of extension"):
        graph.load({"About": pd.DataFrame({"src": months, "dst": ["1", "2"]})}, mode="append")


def test_what_is_no_table_is_refused(graph: Graph, tmp_path: Path) -> None:
    (tmp_path / "text.parquet").write_text("no")
    mixed = pd.DataFrame({"number": [1, "x"]})
    polars = pytest.importorskip("polars")
    no_tables: list[Any] = [
        7,
        [7],
        mixed,
        mixed["number"],
        pd.Series([1], name="number"),
        polars.Series("number", [1]),
        polars.DataFrame({"number": polars.Series([1], dtype=polars.Int128)}),
        pd.DataFrame([[1, 2]], columns=["number", "number"]),
        pd.DataFrame({"number": pd.arrays.SparseArray([1])}),
        mixed.groupby("number"),
        *(tmp_path / name for name in ("no.parquet", "text.parquet", "graph")),
    ]
    for table in no_tables:
        with pytest.raises(InvalidInputError):
            graph.load_tables(nodes={"Person": table}, mode="append")
        with pytest.raises(InvalidInputError):
            graph.load({"Person": table}, mode="append")
