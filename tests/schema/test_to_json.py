from __future__ import annotations

import math
from datetime import UTC, date, datetime

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.schema.values.convert import ConversionMode, convert_values
from omnigraph.schema.values.to_json import JsonForm, to_json_values
from omnigraph.values import BLOB_STORAGE, PropType, Scalar
from support.json_values import ANY_JSON, PROP_TYPES
from support.prop_types import prop_type

COMPATIBLE = ConversionMode.COMPATIBLE
NAN = math.nan


@pytest.mark.parametrize(
    ("column", "target", "result"),
    [
        (pa.array(["a", None]), "String?", ["a", None]),
        (pa.array([True, None]), "Bool?", [True, None]),
        (pa.array([True, False]), "Bool", [True, False]),
        (pa.array([2**64 - 1, None], pa.uint64()), "U64?", [2**64 - 1, None]),
        (pa.array([2**63 - 1, -(2**63)]), "I64", [2**63 - 1, -(2**63)]),
        (pa.array([0.1, None], pa.float32()), "F32?", [0.10000000149011612, None]),
        (pa.array([NAN, math.inf, -math.inf]), "F64", ["NaN", "Infinity", "-Infinity"]),
        (pa.array([12.0]), "F64", [12.0]),
        (pa.array([date(2026, 3, 6), None]), "Date?", ["2026-03-06", None]),
        (
            pa.array([1772798400000, None], pa.int64()).view(pa.date64()),
            "DateTime?",
            ["2026-03-06T12:00:00.000Z", None],
        ),
        (pa.array([[1, None], None, []]), "[I64]?", [[1, None], None, []]),
        (
            pa.array([[NAN, 1.0], None], pa.list_(pa.float32(), 2)),
            "Vector(2)?",
            [[None, 1.0], None],
        ),
        (
            pa.array([{"data": b"AB"}, {"uri": "s3://b/k"}, None, {"data": b""}], BLOB_STORAGE),
            "Blob?",
            ["base64:QUI=", "s3://b/k", None, "base64:"],
        ),
    ],
    ids=str,
)
def test_stored_columns_become_json(column: pa.Array, target: str, result: list[object]) -> None:
    found = to_json_values(column, prop_type(target))
    assert found == result
    assert [type(value) for value in found] == [type(value) for value in result]


def test_exports_spell_dates_and_moments_as_numbers() -> None:
    days = pa.array([19723, None], pa.int32()).view(pa.date32())
    assert to_json_values(days, prop_type("Date?"), JsonForm.EXPORT) == [19723, None]
    moments = pa.array([[1500]], pa.list_(pa.int64())).view(pa.list_(pa.date64()))
    assert to_json_values(moments, prop_type("[DateTime]"), JsonForm.EXPORT) == [[1500]]


@given(values=st.lists(ANY_JSON, max_size=8), prop=PROP_TYPES, form=st.sampled_from(JsonForm))
def test_what_was_stored_reads_back_from_its_json(
    values: list[object], prop: PropType, form: JsonForm
) -> None:
    nullable = prop.with_nullable(True)
    stored = convert_values(values, nullable, "p", COMPATIBLE).column
    again = convert_values(to_json_values(stored, nullable, form), nullable, "p", COMPATIBLE)
    assert again.is_clean
    assert again.column.equals(stored)


@given(moments=st.lists(st.datetimes(timezones=st.just(UTC)), max_size=5))
def test_python_moments_come_back_to_the_millisecond(moments: list[datetime]) -> None:
    done = convert_values([m.isoformat() for m in moments], PropType(Scalar.DATETIME), "p")
    expected = [m.strftime("%m-%dT%H:%M:%S.") + f"{m.microsecond // 1000:03}Z" for m in moments]
    found = [str(text)[5:] for text in to_json_values(done.column, PropType(Scalar.DATETIME))]
    assert found == expected
