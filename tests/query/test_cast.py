"""Compatibility and lossless conversion of values."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.query.check.cast import (
    are_compatible,
    choices_cast_to,
    compared_number,
    constant_cast_to,
    exact_number,
    round_to_f32,
    stored_number,
)
from omnigraph.query.plan.plan import Constant
from omnigraph.values import PropType, Scalar

NUMERIC = [scalar for scalar in Scalar if scalar.is_numeric]
I32 = PropType(Scalar.I32)
F64 = PropType(Scalar.F64)
numbers = st.integers(-(2**65), 2**65) | st.floats(allow_nan=False)


@given(numbers, st.sampled_from(NUMERIC))
def test_an_exact_number_equals_the_original(value: int | float, target: Scalar) -> None:
    cast = exact_number(value, target)
    if cast is None:
        return
    assert isinstance(cast, int if target.is_integer else float)
    if isinstance(value, int) or np.isfinite(value):
        assert Fraction(cast) == Fraction(value)
    else:
        assert cast == value


@given(st.integers(-(2**70), 2**70), st.sampled_from([s for s in NUMERIC if s.is_integer]))
def test_an_integer_is_exact_where_arrow_can_hold_it(value: int, target: Scalar) -> None:
    limits = np.iinfo(PropType(target).arrow_type.to_pandas_dtype())
    fits = int(limits.min) <= value <= int(limits.max)
    assert (exact_number(value, target) is not None) == fits


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_rounding_to_f32_is_that_of_numpy(value: float) -> None:
    with np.errstate(over="ignore"):
        expected = float(np.float32(value))
    assert round_to_f32(value) == (expected if np.isfinite(expected) else None)


def test_a_decimal_literal_is_stored_rounded_but_a_whole_number_must_fit() -> None:
    assert stored_number(0.1, Scalar.F32) == 0.10000000149011612
    assert stored_number(16_777_217, Scalar.F32) is None
    assert stored_number(16_777_216, Scalar.F32) == 16_777_216.0


def test_a_number_beside_an_f32_column_is_rounded() -> None:
    assert compared_number(16_777_217, Scalar.F32) == 16_777_216.0
    assert compared_number(10**60, Scalar.F32) is None
    assert compared_number(10**400, Scalar.F32) is None


def test_a_constant_that_would_change_keeps_its_type() -> None:
    assert constant_cast_to(Constant(2.7, F64), I32) == Constant(2.7, F64)
    assert constant_cast_to(Constant(2.0, F64), I32) == Constant(2, I32)
    assert constant_cast_to(Constant("a", PropType(Scalar.STRING)), I32).value == "a"


def test_choices_that_can_never_be_equal_are_left_out() -> None:
    found = choices_cast_to(Constant((1, 2.5, 2**40), PropType(Scalar.F64, is_list=True)), I32)
    assert found == Constant((1,), PropType(Scalar.I32, is_list=True))


@pytest.mark.parametrize(
    ("left", "right", "compatible"),
    [
        (I32, F64, True),
        (I32, PropType(Scalar.I32, nullable=True), True),
        (I32, PropType(Scalar.I32, is_list=True), False),
        (PropType(Scalar.I32, is_list=True), PropType(Scalar.F32, is_list=True), True),
        (PropType(Scalar.STRING), PropType(Scalar.STRING, enum_values=("a",)), True),
        (PropType(Scalar.DATE), PropType(Scalar.DATETIME), False),
        (PropType(Scalar.BOOL), I32, False),
        (PropType(Scalar.VECTOR, dimension=3), PropType(Scalar.VECTOR, dimension=3), True),
        (PropType(Scalar.VECTOR, dimension=3), PropType(Scalar.VECTOR, dimension=2), False),
        (PropType(Scalar.BLOB), PropType(Scalar.STRING), False),
    ],
)
def test_types_are_compatible_by_shape_and_scalar(
    left: PropType, right: PropType, compatible: bool
) -> None:
    assert are_compatible(left, right) is compatible
    assert are_compatible(right, left) is compatible
