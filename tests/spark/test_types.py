"""Stored columns on their way to Spark and back."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.schema.values.arrow import convert_arrow
from omnigraph.spark.types import (
    MomentOutOfRangeError,
    arrow_type,
    spark_schema,
    travelling_column,
)
from support.prop_types import prop_type

SPARK_TYPES = {
    "String?": "string",
    "enum(a, b)?": "string",
    "Bool?": "boolean",
    "I32?": "int",
    "I64?": "bigint",
    "U32?": "bigint",
    "U64?": "decimal(20,0)",
    "F32?": "float",
    "F64?": "double",
    "Date?": "date",
    "DateTime?": "timestamp",
    "Vector(3)?": "array<float>",
    "[String]?": "array<string>",
    "[U64]?": "array<decimal(20,0)>",
    "[DateTime]?": "array<timestamp>",
    "Blob?": "binary",
}

F32 = st.floats(width=32, allow_nan=False)
US_MAX = (2**63 - 1) // 1_000

STORED_VALUES: dict[str, st.SearchStrategy[object]] = {
    "String?": st.text(max_size=5),
    "Bool?": st.booleans(),
    "I32?": st.integers(-(2**31), 2**31 - 1),
    "I64?": st.integers(-(2**63), 2**63 - 1),
    "U32?": st.integers(0, 2**32 - 1),
    "U64?": st.integers(0, 2**64 - 1),
    "F32?": F32,
    "F64?": st.floats(allow_nan=False),
    "Date?": st.integers(-(2**31), 2**31 - 1),
    "DateTime?": st.integers(-US_MAX, US_MAX),
    "Vector(3)?": st.lists(F32, min_size=3, max_size=3),
    "[String]?": st.lists(st.text(max_size=3), max_size=3),
    "[U64]?": st.lists(st.integers(0, 2**64 - 1), max_size=3),
    "[DateTime]?": st.lists(st.integers(-US_MAX, US_MAX), max_size=3),
}


@pytest.mark.parametrize(("spelling", "expected"), SPARK_TYPES.items())
def test_a_type_has_its_spark_type(spelling: str, expected: str) -> None:
    schema = pa.schema([pa.field("p", arrow_type(prop_type(spelling)))])
    assert spark_schema(schema)["p"].dataType.simpleString() == expected


@pytest.mark.parametrize("spelling", STORED_VALUES)
@settings(max_examples=30)
@given(data=st.data())
def test_a_stored_column_comes_back_as_it_was(spelling: str, data: st.DataObject) -> None:
    values = data.draw(st.lists(STORED_VALUES[spelling] | st.none(), max_size=6))
    start = data.draw(st.integers(0, len(values)))
    kind = prop_type(spelling)
    stored = pa.array(values, _integer_form(kind.arrow_type)).cast(kind.arrow_type).slice(start)
    travelled = travelling_column(stored, pa.field("p", arrow_type(kind)))
    assert travelled.type == arrow_type(kind)
    travelled.validate(full=True)
    back = convert_arrow(travelled, kind, "p")
    assert back.errors.null_count == len(back.errors), back.errors
    assert back.column.equals(stored)
    assert back.truncated_count == 0


def _integer_form(kind: pa.DataType) -> pa.DataType:
    """Dates beyond the years of Python are made from their numbers."""
    if pa.types.is_list(kind):
        return pa.list_(_integer_form(kind.value_type))
    if pa.types.is_date32(kind):
        return pa.int32()
    return pa.int64() if pa.types.is_date64(kind) else kind


@pytest.mark.parametrize("milliseconds", [US_MAX + 1, -US_MAX - 1, 2**63 - 1, -(2**63)])
@pytest.mark.parametrize("is_list", [False, True])
def test_a_moment_beyond_sparks_years_is_an_error_and_never_wraps(
    milliseconds: int, is_list: bool
) -> None:
    moments = pa.array([0, milliseconds], pa.int64()).cast(pa.date64())
    stored = pa.ListArray.from_arrays([0, 2], moments) if is_list else moments
    spelling = "[DateTime]?" if is_list else "DateTime?"
    with pytest.raises(MomentOutOfRangeError, match=f"the moment {milliseconds} ms") as caught:
        travelling_column(stored, pa.field("seen", arrow_type(prop_type(spelling))))
    assert caught.value.column == "seen"


@pytest.mark.parametrize(
    ("spelling", "column", "message"),
    [
        ("U32?", pa.array([-1], pa.int64()), "value -1 exceeds"),
        ("U32?", pa.array([2**32], pa.int64()), "value 4294967296 exceeds"),
        ("U64?", pa.array([Decimal(2**64)], pa.decimal128(20, 0)), "exceeds"),
        ("U64?", pa.array([Decimal(-1)], pa.decimal128(20, 0)), "exceeds"),
        ("I32?", pa.array([2**31], pa.int64()), "exceeds"),
        ("Vector(3)?", pa.array([[1.0, 2.0]], pa.list_(pa.float32())), "2"),
        ("Vector(3)?", pa.array([[1.0, None, 2.0]], pa.list_(pa.float32())), "numeric"),
        ("[I32]?", pa.array([[None]], pa.list_(pa.int32())), "null or invalid item"),
    ],
)
def test_what_does_not_fit_on_the_way_back_is_a_row_in_error(
    spelling: str, column: pa.Array, message: str
) -> None:
    back = convert_arrow(column, prop_type(spelling), "p")
    assert back.column.null_count == 1
    assert message in back.errors[0].as_py()


def test_what_is_finer_than_a_millisecond_is_dropped_and_counted() -> None:
    column = pa.array([1_000_001, 2_000_000, -1], pa.int64()).cast(pa.timestamp("us", tz="UTC"))
    back = convert_arrow(column, prop_type("DateTime?"), "p")
    assert back.column.cast(pa.int64()).to_pylist() == [1_000, 2_000, -1]
    assert back.truncated_count == 2


def test_bytes_become_a_managed_blob() -> None:
    back = convert_arrow(pa.array([b"\x00\x01", None]), prop_type("Blob?"), "p")
    assert back.column.to_pylist() == [{"data": b"\x00\x01", "uri": None}, None]
