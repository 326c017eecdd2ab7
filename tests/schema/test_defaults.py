"""Literals of `@default`."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.schema.catalog import Annotation
from omnigraph.schema.defaults import default_text, read_default
from omnigraph.values import PropType, Scalar

BITS = {Scalar.I32: (True, 32), Scalar.I64: (True, 64), Scalar.U32: (False, 32)}
BITS[Scalar.U64] = (False, 64)


@pytest.mark.parametrize("scalar", BITS)
@given(value=st.integers(-(2**65), 2**65))
def test_an_integer_fits_exactly_when_its_type_holds_it(scalar: Scalar, value: int) -> None:
    signed, bits = BITS[scalar]
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    if low <= value <= high:
        assert read_default(PropType(scalar), str(value)) == value
    else:
        with pytest.raises(ValueError, match=f"from {low} to {high}"):
            read_default(PropType(scalar), str(value))


@given(st.floats(min_value=3.4e38, max_value=3.5e38))
def test_a_float_fits_exactly_when_rounding_keeps_it_finite(value: float) -> None:
    with np.errstate(over="ignore"):
        is_finite = bool(np.isfinite(np.float32(value)))
    text = f"{value:.1f}"
    if is_finite:
        assert read_default(PropType(Scalar.F32), text) == value
    else:
        with pytest.raises(ValueError, match="F32"):
            read_default(PropType(Scalar.F32), text)
    assert read_default(PropType(Scalar.F64), text) == value


@pytest.mark.parametrize(
    ("prop_type", "text"),
    [
        (PropType(Scalar.I32), "1.0"),
        (PropType(Scalar.I32), "1_0"),
        (PropType(Scalar.I32), ""),
        (PropType(Scalar.I32), " 1"),
        (PropType(Scalar.I32), "٣"),
        (PropType(Scalar.I64), "9" * 5000),
        (PropType(Scalar.F64), "nan"),
        (PropType(Scalar.F64), "inf"),
        (PropType(Scalar.F64), "1e3"),
        (PropType(Scalar.F64), "9" * 5000),
        (PropType(Scalar.F64), "9" * 399),
        (PropType(Scalar.BOOL), "True"),
        (PropType(Scalar.STRING, enum_values=("a", "b")), "c"),
        (PropType(Scalar.STRING, is_list=True), "a"),
        (PropType(Scalar.VECTOR, dimension=1), "1"),
    ],
)
def test_a_literal_that_does_not_fit_is_refused(prop_type: PropType, text: str) -> None:
    with pytest.raises(ValueError, match=r"expected|takes no @default"):
        read_default(prop_type, text)


def test_the_note_is_found_among_others() -> None:
    assert default_text((Annotation("unit", "m"), Annotation("default", "7"))) == "7"
    assert default_text((Annotation("unit", "m"),)) is None
