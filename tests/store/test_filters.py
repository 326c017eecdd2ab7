"""Filters as records: what they match, and that indexes are probed for them."""

from __future__ import annotations

from datetime import date

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.store import Store, connect
from omnigraph.store.datasets import DatasetHandle
from omnigraph.store.errors import InvalidScanError
from omnigraph.store.filters import (
    AllOf,
    AnyOf,
    Comparison,
    Contains,
    Filter,
    IsNull,
    Negation,
    OneOf,
    Operator,
    StartsWith,
    filter_columns,
)
from omnigraph.store.lance.sql import render_filter
from omnigraph.store.records import IndexKind, IndexSpec, ScanRequest
from omnigraph.values import PropType, Scalar
from support.scans import explain

COLUMNS = {
    "s": Scalar.STRING,
    "b": Scalar.BOOL,
    "i": Scalar.I32,
    "l": Scalar.I64,
    "u": Scalar.U32,
    "w": Scalar.U64,
    "f": Scalar.F32,
    "d": Scalar.F64,
    "day": Scalar.DATE,
    "moment": Scalar.DATETIME,
}
SCHEMA = pa.schema(
    [pa.field("Id", pa.utf8(), nullable=False)]
    + [PropType(scalar, nullable=True).arrow_field(name) for name, scalar in COLUMNS.items()]
)
VALUES: dict[str, list[object]] = {
    "Id": ["r0", "r1", "r2"],
    "s": ["it's `so`", "naïve\\", None],
    "b": [True, False, None],
    "i": [-(2**31), 2**31 - 1, None],
    "l": [-(2**63), 2**63 - 1, None],
    "u": [0, 2**32 - 1, None],
    "w": [0, 2**64 - 1, None],
    "f": [1.5, -0.25, None],
    "d": [1e300, float("inf"), None],
    "day": [0, 19_000, None],
    "moment": [0, 86_400_000 * 3 + 5, None],
}


def arrow(name: str) -> pa.Array:
    kind = SCHEMA.field(name).type
    if kind == pa.date32():
        return pa.array(VALUES[name], pa.int32()).view(kind)
    if kind == pa.date64():
        return pa.array(VALUES[name], pa.int64()).view(kind)
    return pa.array(VALUES[name], kind)


ROWS = pa.Table.from_arrays([arrow(name) for name in SCHEMA.names], schema=SCHEMA)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    store = connect(str(tmp_path_factory.mktemp("graph")), durability="process")
    at = store.datasets.commit_staged(store.datasets.stage_create("t", SCHEMA, rows=ROWS)).at
    specs = [IndexSpec(name, IndexKind.BTREE) for name in COLUMNS]
    store.datasets.commit_staged(store.datasets.stage_create_index(at, specs))
    return store


@pytest.fixture(scope="module")
def handle(store: Store) -> DatasetHandle:
    return store.datasets.open("t")


def matching(handle: DatasetHandle, row_filter: Filter) -> list[str]:
    found = handle.scan(ScanRequest(columns=("Id",), row_filter=row_filter)).read_all()
    assert handle.count(row_filter) == found.num_rows
    return found["Id"].to_pylist()


@pytest.mark.parametrize("column", list(COLUMNS))
def test_a_typed_literal_finds_its_row_through_the_index(
    handle: DatasetHandle, column: str
) -> None:
    for number in (0, 1):
        row_filter = Comparison(column, "=", ROWS[column][number])
        assert matching(handle, row_filter) == [f"r{number}"]
        plan = explain(handle, ScanRequest(row_filter=row_filter))
        assert "ScalarIndexQuery" in plan, f"{column} was scanned:\n{plan}"


@pytest.mark.parametrize("column", list(COLUMNS))
def test_several_values_and_nulls_are_found(handle: DatasetHandle, column: str) -> None:
    values = (ROWS[column][0], ROWS[column][1])
    assert matching(handle, OneOf(column, values)) == ["r0", "r1"]
    assert matching(handle, OneOf(column, ())) == []
    assert matching(handle, IsNull(column)) == ["r2"]
    assert matching(handle, Negation(IsNull(column))) == ["r0", "r1"]


@pytest.mark.parametrize(
    ("operator", "expected"),
    [
        ("=", ["r0"]),
        ("!=", ["r1"]),
        ("<", []),
        ("<=", ["r0"]),
        (">", ["r1"]),
        (">=", ["r0", "r1"]),
    ],
)
def test_operators_compare_and_nulls_never_match(
    handle: DatasetHandle, operator: Operator, expected: list[str]
) -> None:
    for column in ("i", "l", "u", "w", "day", "moment"):
        assert matching(handle, Comparison(column, operator, ROWS[column][0])) == expected


def test_plain_values_stand_for_the_wide_types(handle: DatasetHandle) -> None:
    assert matching(handle, Comparison("l", "=", 2**63 - 1)) == ["r1"]
    assert matching(handle, Comparison("d", ">", 1.0)) == ["r0", "r1"]
    assert matching(handle, Comparison("b", "=", True)) == ["r0"]
    assert matching(handle, Comparison("s", "=", "it's `so`")) == ["r0"]
    assert matching(handle, Comparison("d", "=", float("inf"))) == ["r1"]
    assert matching(handle, Comparison("d", "=", float("nan"))) == []


def test_a_null_literal_matches_nothing(handle: DatasetHandle) -> None:
    assert matching(handle, Comparison("i", "=", pa.scalar(None, pa.int32()))) == []


def test_a_time_of_day_is_not_lost(handle: DatasetHandle) -> None:
    midnight = pa.scalar(86_400_000 * 3, pa.int64()).cast(pa.date64())
    assert matching(handle, Comparison("moment", "=", midnight)) == []
    assert matching(handle, Comparison("moment", ">", midnight)) == ["r1"]
    day = pa.scalar(date(2022, 1, 8), pa.date32())
    assert matching(handle, Comparison("day", "=", day)) == ["r1"]


def test_text_is_matched_literally(handle: DatasetHandle) -> None:
    assert matching(handle, StartsWith("s", "it's")) == ["r0"]
    assert matching(handle, StartsWith("s", "IT'S")) == []
    assert matching(handle, Contains("s", "`so")) == ["r0"]
    assert matching(handle, Contains("s", "ï")) == ["r1"]
    assert matching(handle, Contains("s", "%")) == []
    assert matching(handle, Contains("s", "\\")) == ["r1"]


def test_parts_are_joined_as_written(handle: DatasetHandle) -> None:
    first, second = Comparison("Id", "=", "r0"), Comparison("Id", "=", "r1")
    both = AnyOf((first, second))
    assert matching(handle, both) == ["r0", "r1"]
    assert matching(handle, AllOf((both, Negation(first)))) == ["r1"]
    assert matching(handle, AllOf((first, AnyOf((second, first))))) == ["r0"]
    assert matching(handle, AllOf(())) == ["r0", "r1", "r2"]
    assert matching(handle, AnyOf(())) == []


def test_a_filter_knows_its_columns() -> None:
    row_filter = AllOf((Comparison("a", "=", 1), Negation(AnyOf((IsNull("b"), OneOf("c", ()))))))
    assert filter_columns(row_filter) == {"a", "b", "c"}
    assert filter_columns(AllOf(())) == set()


def test_column_names_keep_their_letter_case(handle: DatasetHandle) -> None:
    with pytest.raises(InvalidScanError, match="did you mean `Id`"):
        handle.count(Comparison("id", "=", "r0"))


def test_a_filter_is_spelled_so_that_lance_reads_it() -> None:
    row_filter = OneOf("odd`name", (pa.scalar(5, pa.uint32()), pa.scalar("x'y")))
    assert render_filter(row_filter) == "`odd``name` IN (arrow_cast(5, 'UInt32'), 'x''y')"


@given(st.text(max_size=30))
def test_any_text_is_found_again(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    store = TEXTS.setdefault("store", connect(str(tmp_path_factory.getbasetemp() / "texts")))
    handle = one_row(store)
    row_filter = Comparison("s", "=", text)
    found = handle.scan(ScanRequest(row_filter=row_filter)).read_all()
    assert found.num_rows == (1 if text == "needle" else 0)
    negated = handle.scan(ScanRequest(row_filter=Comparison("s", "!=", text))).read_all()
    assert found.num_rows + negated.num_rows == 1


TEXTS: dict[str, Store] = {}


def one_row(store: Store) -> DatasetHandle:
    if not store.datasets.exists("t"):
        schema = pa.schema([("s", pa.utf8())])
        rows = pa.table({"s": ["needle"]}, schema=schema)
        store.datasets.commit_staged(store.datasets.stage_create("t", schema, rows=rows))
    return store.datasets.open("t")
