from __future__ import annotations

import math
from datetime import date
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.schema.values.arrow import convert_arrow
from omnigraph.schema.values.convert import ConversionMode, convert_values
from omnigraph.schema.values.to_json import to_json_values
from omnigraph.values import BLOB_STORAGE, PropType, Scalar
from support.columns import raw_values, same_bits
from support.json_values import DOUBLES, PLAIN, moment_texts
from support.prop_types import prop_type

COMPATIBLE = ConversionMode.COMPATIBLE


NAN = math.nan
MAX_S = 2**63 // 1000


@pytest.mark.parametrize(
    ("column", "target", "stored"),
    [
        (pa.array(["a", None, "a"]).dictionary_encode(), "String?", ["a", None, "a"]),
        (pa.array(["a"], pa.large_string()), "String", ["a"]),
        (pa.array(["a"], pa.string_view()), "String", ["a"]),
        (pa.chunked_array([["a"], ["b"]]), "String", ["a", "b"]),
        (pa.RunEndEncodedArray.from_arrays([2], ["a"]), "String", ["a", "a"]),
        (pa.nulls(2), "I64?", [None, None]),
        (pa.array([True, None]), "Bool?", [True, None]),
        (pa.array([1, None], pa.int8()), "I64?", [1, None]),
        (pa.array([2**64 - 1], pa.uint64()), "U64", [2**64 - 1]),
        (pa.array([7.0, None]), "I32?", [7, None]),
        (pa.array([-(2.0**63), 2.0**53]), "I64", [-(2**63), 2**53]),
        (pa.array([2.0**63]), "U64", [2**63]),
        (pa.array([Decimal(2**64 - 1)]), "U64", [2**64 - 1]),
        (pa.array([Decimal("7.00"), None]), "I32?", [7, None]),
        (pa.array([Decimal("0.1")]), "F64", [0.1]),
        (pa.array([2**53 + 1]), "F64", [2.0**53]),
        (pa.array([2**24 + 1]), "F32", [2.0**24]),
        (pa.array([1.5], pa.float16()), "F32", [1.5]),
        (pa.array([0.1]), "F32", [float(np.float32(0.1))]),
        (pa.array([3], pa.int16()), "Date", [3]),
        (pa.array([date(2024, 1, 1)]), "Date", [19723]),
        (pa.array([date(2024, 1, 1)]), "DateTime", [19723 * 86_400_000]),
        (pa.array([-1], pa.int64()).view(pa.date64()), "DateTime", [-1]),
        (pa.array([-1], pa.int64()).view(pa.date64()), "Date", [-1]),
        (pa.array([-1], pa.timestamp("ns")), "DateTime", [-1]),
        (pa.array([-1], pa.timestamp("us", "Europe/Berlin")), "Date", [-1]),
        (pa.array([2], pa.timestamp("s")), "DateTime", [2000]),
        (pa.array(["2024-01-01", None]), "Date?", [19723, None]),
        (pa.array([[1, 2], None]), "[I32]?", [[1, 2], None]),
        (pa.array([["1970-01-02"], []], pa.large_list(pa.utf8())), "[Date]", [[1], []]),
        (pa.array([[1, 2]], pa.list_(pa.int32(), 2)), "[I64]", [[1, 2]]),
        (pa.array([[1.5, 2], None], pa.list_(pa.float64())), "Vector(2)?", [[1.5, 2.0], None]),
        (pa.array([[1, 2]], pa.list_(pa.int8(), 2)), "Vector(2)", [[1.0, 2.0]]),
        (pa.array([b"\x00", None]), "Blob?", [{"data": b"\x00", "uri": None}, None]),
        (pa.array(["base64:QUI="]), "Blob", [{"data": b"AB", "uri": None}]),
        (
            pa.array([{"data": None, "uri": "s3://b/k"}, None], BLOB_STORAGE),
            "Blob?",
            [{"data": None, "uri": "s3://b/k"}, None],
        ),
    ],
    ids=str,
)
def test_an_arrow_column_is_taken_without_loss(
    column: pa.Array, target: str, stored: list[object]
) -> None:
    done = convert_arrow(column, prop_type(target), "p")
    assert done.errors.drop_null().to_pylist() == []
    assert done.column.type == prop_type(target).arrow_type
    assert raw_values(done.column) == stored


@pytest.mark.parametrize(
    ("column", "target", "error"),
    [
        (pa.array([1]), "String", "V101 strict property 'p' expects String, got a column of int64"),
        (pa.array(["1"]), "I64", "V101 strict property 'p' expects Int64, got a column of string"),
        (pa.array([True]), "F64", "V101 strict property 'p' expects Float64, got a column of bool"),
        (pa.array([2**31]), "I32", "V102 property 'p' value 2147483648 exceeds Int32 range"),
        (pa.array([-1]), "U64", "V102 property 'p' value -1 exceeds UInt64 range"),
        (pa.array([2.0**63]), "I64", "V102 property 'p' value 9.223372036854776e+18"),
        (pa.array([1e300]), "U64", "V102 property 'p' value 1e+300 exceeds UInt64 range"),
        (pa.array([7.5]), "I32", "V114 property 'p' value 7.5 is not a whole number"),
        (pa.array([NAN]), "I32", "V114 property 'p' value nan is not a whole number"),
        (pa.array([Decimal("7.5")]), "I32", "V114 property 'p' value 7.5 is not a whole number"),
        (pa.array([Decimal(2**64)]), "U64", "V102 property 'p' value 18446744073709551616 "),
        (pa.array([1e39]), "F32", "V102 property 'p' value 1e+39 exceeds Float32 range"),
        (pa.array([2**31]), "Date", "V103 property 'p': Date value out of range"),
        (pa.array([MAX_S + 1], pa.timestamp("s")), "DateTime", "V103 property 'p': DateTime value"),
        (pa.array(["x"]), "Date", "V104 property 'p': invalid Date literal 'x'"),
        (pa.array([None], pa.int64()), "I64", "V105 non-nullable property 'p' has null or invalid"),
        (pa.array([1]), "[I64]", "V106 property 'p' expects a JSON array"),
        (pa.array([[1, None]]), "[I64]", "V107 property 'p' contains a null or invalid item"),
        (pa.array([["x"]]), "[I64]", "V107 property 'p' contains a null or invalid item"),
        (pa.array([[2**40]]), "[I32]", "V102 property 'p' list value 1099511627776 exceeds Int32"),
        (pa.array([[1.0]]), "Vector(2)", "V108 property 'p' expects 2 dimensions, got 1"),
        (pa.array([[1.0, None]]), "Vector(2)", "V109 property 'p' vector elements must be numeric"),
        (pa.array([["a", "b"]]), "Vector(2)", "V109 property 'p' vector elements must be numeric"),
        (pa.array([[1e39]]), "Vector(1)", "V102 property 'p' vector value 1e+39 exceeds Float32"),
        (pa.array(["base64:!"]), "Blob", "V111 property 'p' has invalid base64 blob data"),
        (pa.array([1]), "Blob", "V112 property 'p' must be a URI string or base64: prefixed data"),
        (
            pa.array([{"data": None, "uri": None}], BLOB_STORAGE),
            "Blob",
            "V112 property 'p' needs either data or uri, found both or neither",
        ),
    ],
    ids=str,
)
def test_an_arrow_value_that_does_not_fit_is_a_row_in_error(
    column: pa.Array, target: str, error: str
) -> None:
    done = convert_arrow(column, prop_type(target), "p")
    found = f"{done.codes[0]} {done.errors[0]}"
    assert found.startswith(error)
    assert done.column.to_pylist() == [None]


def test_nan_and_infinity_of_float_columns_are_values() -> None:
    done = convert_arrow(pa.array([NAN, math.inf, -math.inf]), PropType(Scalar.F32), "p")
    assert done.is_clean
    assert to_json_values(done.column, PropType(Scalar.F32)) == ["NaN", "Infinity", "-Infinity"]


def test_moments_finer_than_a_millisecond_are_counted() -> None:
    column = pa.array([1_000_000, 1_000_001, -1, None], pa.timestamp("ns"))
    done = convert_arrow(column, PropType(Scalar.DATETIME, nullable=True), "p")
    assert raw_values(done.column) == [1, 1, -1, None]
    assert done.truncated_count == 2


def test_a_column_of_another_kind_is_null_in_compatible_mode() -> None:
    prop = PropType(Scalar.I64, nullable=True)
    done = convert_arrow(pa.array(["1", None]), prop, "p", COMPATIBLE)
    assert done.is_clean
    assert done.column.to_pylist() == [None, None]


ARROW_COLUMNS = st.one_of(
    st.lists(st.none() | st.integers(-(2**63), 2**63 - 1)).map(lambda v: pa.array(v, pa.int64())),
    st.lists(st.none() | st.integers(0, 2**64 - 1)).map(lambda v: pa.array(v, pa.uint64())),
    st.lists(st.none() | DOUBLES).map(lambda v: pa.array(v, pa.float64())),
    st.lists(st.none() | moment_texts()).map(lambda v: pa.array(v, pa.utf8())),
    st.lists(st.none() | st.booleans()).map(lambda v: pa.array(v, pa.bool_())),
)


@given(column=ARROW_COLUMNS, scalar=st.sampled_from(PLAIN), start=st.integers(0, 3))
def test_arrow_columns_convert_like_the_json_values_they_hold(
    column: pa.Array, scalar: Scalar, start: int
) -> None:
    sliced = column[start:]
    values = sliced.to_pylist()
    prop = PropType(scalar, nullable=True)
    from_arrow = convert_arrow(sliced, prop, "p")
    from_json = convert_values(values, prop, "p")
    # Whole floats are accepted for integers here, and only here.
    allowed = pa.types.is_floating(column.type) and scalar.is_integer
    if not allowed:
        assert [same_bits(v) for v in raw_values(from_arrow.column)] == [
            same_bits(v) for v in raw_values(from_json.column)
        ]
        assert from_arrow.codes.to_pylist() == from_json.codes.to_pylist()
        return
    for value, stored in zip(values, from_arrow.column.to_pylist(), strict=True):
        assert stored is None or stored == value


ODD_COLUMNS = [
    pa.array([1], pa.duration("s")),
    pa.array([1], pa.time64("us")),
    pa.array([{"a": 1}]),
    pa.array([[("a", 1)]], pa.map_(pa.utf8(), pa.int64())),
    pa.array([[{"a": 1}]]),
    pa.array([["a", "b"]], pa.list_(pa.dictionary(pa.int8(), pa.utf8()))),
    pa.array([b"xy"], pa.binary(2)),
    pa.array([b"x"], pa.binary_view()),
    pa.array([[1, 2]], pa.list_view(pa.int64())),
    pa.array([Decimal("1E+5")], pa.decimal128(10, -2)),
    pa.array([Decimal("1.50")], pa.decimal64(10, 2)),
    pa.array([Decimal("9" * 76)], pa.decimal256(76, 0)),
    pa.array([Decimal("0." + "1" * 76)], pa.decimal256(76, 76)),
    pa.array([1.5, None], pa.float16()),
    pa.array([[None]], pa.list_(pa.null())),
    pa.array([[], None]),
    pa.array([-(2**63), 2**63 - 1], pa.timestamp("s")),
    pa.array([2**62], pa.int64()).view(pa.date64()),
    pa.array(["x", "2024-01-01"]).dictionary_encode()[1:],
    pa.array([[1, None], [2, 3], None], pa.list_(pa.float32(), 2))[1:],
    pa.array([[1, None], [2, 3], None])[1:],
    pa.array([True, None, False])[1:],
    pa.array([{"data": b"x", "uri": None}, None], BLOB_STORAGE)[1:],
    pa.chunked_array([], pa.int64()),
]
ALL_TYPES = [
    *(PropType(scalar, nullable=True) for scalar in PLAIN),
    *(PropType(scalar, True, is_list=True) for scalar in PLAIN if scalar is not Scalar.BLOB),
    PropType(Scalar.VECTOR, nullable=True, dimension=2),
]


@pytest.mark.parametrize("column", ODD_COLUMNS, ids=lambda column: str(column.type))
@pytest.mark.parametrize("mode", ConversionMode)
def test_no_column_of_any_kind_raises(column: pa.Array, mode: ConversionMode) -> None:
    for prop in ALL_TYPES:
        done = convert_arrow(column, prop, "p", mode)
        done.column.validate()
        assert done.column.type == prop.arrow_type
        assert len(done.column) == len(done.errors) == len(column)
