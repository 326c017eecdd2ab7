from __future__ import annotations

import math
import pickle
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.schema.values.codes import VALUE_CODES
from omnigraph.schema.values.convert import ConversionMode, Converted, convert_values, member_values
from omnigraph.schema.values.to_json import to_json_values
from omnigraph.values import PropType, Scalar
from support.cases import Case, check_case, load_cases
from support.columns import raw_values, same_bits
from support.json_values import PLAIN, PROP_TYPES, batches
from support.prop_types import prop_type
from support.reference_convert import Outcome, parse_json, reference, show_json

STRICT, COMPATIBLE = ConversionMode.STRICT, ConversionMode.COMPATIBLE


@pytest.mark.parametrize("case", load_cases("convert"), ids=str)
def test_case(case: Case, update_cases: bool) -> None:
    prop = prop_type(case.sections["type"])
    lines = case.sections["values"].splitlines()
    values = [parse_json(line) for line in lines]
    for mode in ConversionMode:
        done = convert_values(values, prop, "p", mode)
        shown = [_show_row(done, prop, row) for row in range(len(lines))]
        actual = "\n".join(f"{line} -> {out}" for line, out in zip(lines, shown, strict=True))
        check_case(case, str(mode), actual, update_cases)


def _show_row(done: Converted, prop: PropType, row: int) -> str:
    if done.errors[row].is_valid:
        return f"{done.codes[row]} {done.errors[row]}"
    return show_json(to_json_values(done.column.slice(row, 1), prop)[0])


# --- against a slow and obvious implementation -----------------------------------------------


@given(values=batches(), prop=PROP_TYPES, mode=st.sampled_from(ConversionMode))
def test_a_batch_converts_like_its_values_one_by_one(
    values: list[object], prop: PropType, mode: ConversionMode
) -> None:
    done = convert_values(values, prop, "p", mode)
    assert done.column.type == prop.arrow_type
    done.column.validate()
    expected = [reference(value, prop, "p", mode) for value in values]
    assert done.errors.to_pylist() == [outcome.error for outcome in expected]
    stored = raw_values(done.column)
    assert [same_bits(value) for value in stored] == [same_bits(o.value) for o in expected]
    assert [code is None for code in done.codes.to_pylist()] == [
        outcome.error is None for outcome in expected
    ]


# --- single claims ---------------------------------------------------------------------------


def test_a_default_fills_members_that_are_left_out_but_not_null_ones() -> None:
    records: list[dict[str, object]] = [{"a": 1}, {}, {"a": None}]
    assert member_values(records, "a", default=7) == [1, 7, None]
    assert member_values(records, "a") == [1, None, None]
    assert member_values([{"a": 1}, {"a": 2}], "a", default=7) == [1, 2]


@pytest.mark.parametrize("scalar", [Scalar.F32, Scalar.F64])
@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("neighbour", [1.5, 1, None, "x"])
def test_a_float_that_is_not_finite_is_refused(
    scalar: Scalar, number: float, neighbour: object
) -> None:
    done = convert_values([number, neighbour], PropType(scalar, nullable=True), "p", COMPATIBLE)
    assert "must be finite" in done.errors[0].as_py()
    assert done.column[0].as_py() is None


def test_a_vector_element_that_is_not_finite_is_refused() -> None:
    done = convert_values([[1.0, math.nan]], PropType(Scalar.VECTOR, dimension=2), "p")
    assert done.errors.to_pylist() == ["property 'p' vector value nan must be finite"]


@pytest.mark.parametrize("scalar", [s for s in PLAIN if s.is_numeric])
def test_a_python_integer_beyond_64_bits_is_out_of_range(scalar: Scalar) -> None:
    done = convert_values([10**400, 1], PropType(scalar), "p")
    assert done.codes.to_pylist() == ["V102", None]
    assert done.column.to_pylist() == [None, 1]


def test_text_without_a_utf8_form_is_a_row_in_error() -> None:
    done = convert_values(["ok", "\ud800", None], PropType(Scalar.STRING, nullable=True), "p")
    assert done.column.to_pylist() == ["ok", None, None]
    assert done.codes.to_pylist() == [None, "V113", None]


def test_objects_that_json_does_not_know_are_of_another_kind() -> None:
    done = convert_values([Decimal(1), object], PropType(Scalar.I64, nullable=True), "p")
    assert done.codes.to_pylist() == ["V101", "V101"]


def test_messages_do_not_carry_whole_values() -> None:
    done = convert_values(["x" * 10_000], PropType(Scalar.I64), "p")
    assert len(done.errors[0].as_py()) < 200


def test_an_empty_batch_has_the_stored_type() -> None:
    for text in ("I32", "String", "[Date]", "Vector(3)", "Blob", "DateTime"):
        prop = prop_type(text)
        done = convert_values([], prop, "p")
        assert done.column.type == prop.arrow_type
        assert done.is_clean
        assert to_json_values(done.column, prop) == []


def test_errors_can_be_sent_to_another_process() -> None:
    done = convert_values([1, "x"], PropType(Scalar.I32), "p")
    again = pickle.loads(pickle.dumps(done))
    assert again.errors.equals(done.errors)


def test_every_code_has_a_meaning_of_one_line() -> None:
    for code, meaning in VALUE_CODES.items():
        assert code[0] == "V"
        assert code[1] in "123"
        assert "\n" not in meaning


def test_the_slow_implementation_refuses_and_accepts() -> None:
    prop = PropType(Scalar.I32)
    assert reference(1, prop, "p", STRICT) == Outcome(1, None)
    assert reference(1.0, prop, "p", STRICT).error is not None
