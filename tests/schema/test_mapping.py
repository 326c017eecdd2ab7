"""Rows of a stored type under another schema."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest

from omnigraph.schema import Aliases, EntityType, TypeMapping, compile_schema, map_type, plan_schema

DOMAIN = "01JMAPP1NG0000000000000000"


def mapping(stored: str, wanted: str) -> TypeMapping:
    """Map from one text to the next of the same graph."""
    before = compile_schema(f"node A {{ {stored} }}", domain=DOMAIN)
    after = plan_schema(f"node A {{ {wanted} }}", accepted=before.ir).desired
    types: list[EntityType] = [s.catalog.node_types["A"] for s in (before, after)]
    return map_type(types[0], types[1], Aliases.of(before.ir, after.ir))


def rows(mapped: TypeMapping, **columns: list[Any]) -> dict[str, list[Any]]:
    count = len(next(iter(columns.values())))
    schema = mapped.stored.arrow_schema
    values = {"id": [str(index) for index in range(count)]} | columns
    batch = pa.record_batch([pa.array(values[f.name], f.type) for f in schema], schema=schema)
    return {
        field.name: array.cast(pa.int64()).to_pylist()
        if pa.types.is_date64(field.type)
        else array.to_pylist()
        for field, array in zip(mapped.wanted.arrow_schema, mapped.batch(batch), strict=True)
    }


def test_equal_columns_need_nothing() -> None:
    assert mapping("p: I32?", 'p: I32? @description("x") @index').is_identity
    assert mapping("p: I32", "p: I32?").is_identity


@pytest.mark.parametrize(
    "wanted", ["p: I64?", "q: I32? @rename_from(p)", "p: I32? q: I32?", "", "q: I32?"]
)
def test_other_columns_need_something(wanted: str) -> None:
    assert not mapping("p: I32?", wanted).is_identity


def test_values_follow_renames_and_added_columns_are_filled() -> None:
    mapped = mapping("p: I32?", "q: I64? @rename_from(p)  r: F32 @default(0.5)  s: I32?")
    found = rows(mapped, p=[1, None])
    assert found == {"id": ["0", "1"], "q": [1, None], "r": [0.5, 0.5], "s": [None, None]}


def test_two_renames_in_a_circle_are_not_confused() -> None:
    before = compile_schema("node A { p: I32? q: I32? }", domain=DOMAIN)
    first = plan_schema("node A { x: I32? @rename_from(p)  q: I32? }", accepted=before.ir).desired
    second = plan_schema("node A { x: I32?  p: I32? @rename_from(q) }", accepted=first.ir).desired
    third = plan_schema("node A { q: I32? @rename_from(x)  p: I32? }", accepted=second.ir).desired
    stored, wanted = (s.catalog.node_types["A"] for s in (before, third))
    assert rows(map_type(stored, wanted, Aliases()), p=[1], q=[2]) == {
        "id": ["0"],
        "p": [2],
        "q": [1],
    }


@pytest.mark.parametrize(
    ("wide", "narrow", "values", "fitting"),
    [
        ("I64?", "I32?", [1, 2**40, None, -1], [1, None, None, -1]),
        ("I64?", "U32?", [1, -1, 2**32 - 1, None], [1, None, 2**32 - 1, None]),
        ("U64?", "U32?", [1, 2**32], [1, None]),
        ("F64?", "F32?", [0.5, 0.1, None], [0.5, None, None]),
    ],
)
def test_narrowing_keeps_what_fits_and_reports_the_rest(
    wide: str, narrow: str, values: list[Any], fitting: list[Any]
) -> None:
    widened = mapping(f"p: {narrow}", f"p: {wide}")
    back = map_type(widened.wanted, widened.stored, Aliases())
    assert rows(back, p=values)["p"] == fitting
    [column] = [column for column in back.columns if column.field.name == "p"]
    batch = pa.record_batch([pa.array(values, widened.wanted.arrow_schema.field("p").type)], ["p"])
    expected = [v is not None and f is None for v, f in zip(values, fitting, strict=True)]
    assert column.misfits(batch).to_pylist() == expected


@pytest.mark.parametrize(
    ("stored", "wanted", "values", "fitting"),
    [
        ("I64?", "U64?", [1, -1, -(2**63), None], [1, None, None, None]),
        ("U64?", "I64?", [1, 2**63, 2**64 - 1, None], [1, None, None, None]),
    ],
)
def test_a_number_never_changes_its_sign(
    stored: str, wanted: str, values: list[Any], fitting: list[Any]
) -> None:
    before, after = (mapping("p: U32?", f"p: {each}") for each in (stored, wanted))
    across = map_type(before.wanted, after.wanted, Aliases())
    assert rows(across, p=values)["p"] == fitting
    assert [column.field.name for column in across.narrowed] == ["p"]


def test_days_become_midnights_and_back() -> None:
    day = 86_400_000
    widened = mapping("p: Date?", "p: DateTime?")
    dates = pa.array([1, -1, None], pa.int32()).cast(pa.date32())
    assert rows(widened, p=dates.to_pylist())["p"] == [day, -day, None]
    back = map_type(widened.wanted, widened.stored, Aliases())
    [column] = [column for column in back.columns if column.field.name == "p"]
    moments = pa.array([day, day + 1, -day, -1, None], pa.int64()).cast(pa.date64(), safe=False)
    batch = pa.record_batch([moments], ["p"])
    assert column.misfits(batch).to_pylist() == [False, True, False, True, False]
    assert column.column(batch).cast(pa.int32()).to_pylist() == [1, None, -1, None, None]


def test_not_a_number_stays_one() -> None:
    widened = mapping("p: F32?", "p: F64?")
    [found] = rows(widened, p=[float("nan")])["p"]
    assert math.isnan(found)
