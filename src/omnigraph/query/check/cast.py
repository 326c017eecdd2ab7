"""Which types go together, and converting a value from one to another without changing it."""

from __future__ import annotations

import math
import struct
from typing import Final

from omnigraph.query.plan.plan import Constant, ConstantValue
from omnigraph.values import PropType, Scalar

INTEGER_RANGES: Final[dict[Scalar, tuple[int, int]]] = {
    Scalar.I32: (-(2**31), 2**31 - 1),
    Scalar.I64: (-(2**63), 2**63 - 1),
    Scalar.U32: (0, 2**32 - 1),
    Scalar.U64: (0, 2**64 - 1),
}


def are_compatible(left: PropType, right: PropType) -> bool:
    """Whether values of both types can meet: same shape, and same scalar or both numeric.

    Nullability does not matter and an enum counts as String.
    """
    if left.is_list != right.is_list:
        return False
    if left.scalar is right.scalar:
        return left.dimension == right.dimension
    return left.scalar.is_numeric and right.scalar.is_numeric


def item_type(prop_type: PropType) -> PropType:
    """Return the type of one element of a list."""
    return PropType(prop_type.scalar)


def round_to_f32(value: float) -> float | None:
    """Return the F32 nearest to `value`, or None when that is beyond its range.

    >>> round_to_f32(0.1)
    0.10000000149011612
    """
    try:
        rounded: float = struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return None
    return rounded


def exact_number(value: int | float, target: Scalar) -> int | float | None:
    """Return the equal number of a numeric type, or None when there is none.

    >>> exact_number(3, Scalar.F64), exact_number(2.0, Scalar.I32), exact_number(2.5, Scalar.I32)
    (3.0, 2, None)
    """
    if target.is_integer:
        return _exact_integer(value, target)
    try:
        number = float(value)
    except OverflowError:
        return None
    converted = round_to_f32(number) if target is Scalar.F32 else number
    return converted if converted == value else None


def stored_number(value: int | float, target: Scalar) -> int | float | None:
    """Return what a numeric column stores for `value`, or None when that would change it.

    As `exact_number`, but a float is rounded to an F32 column: its literals are decimal.
    """
    if target is Scalar.F32 and isinstance(value, float):
        return round_to_f32(value)
    return exact_number(value, target)


def compared_number(value: int | float, target: Scalar) -> int | float | None:
    """Return the number to compare a column with, or None to compare with `value` itself.

    As `exact_number`, but every number is rounded to an F32 column.
    """
    if target is not Scalar.F32:
        return exact_number(value, target)
    try:
        return round_to_f32(float(value))
    except OverflowError:
        return None


def constant_cast_to(constant: Constant, other: PropType) -> Constant:
    """Give a constant the exact type of the single value that it is compared with, if it fits."""
    if constant.prop_type.scalar is other.scalar or not other.scalar.is_numeric:
        return constant
    value = _number(constant.value)
    cast = None if value is None else compared_number(value, other.scalar)
    return constant if cast is None else Constant(cast, PropType(other.scalar))


def choices_cast_to(choices: Constant, operand: PropType) -> Constant:
    """Give a list constant the operand's type, without the elements that it can never equal."""
    target = PropType(operand.scalar, is_list=True)
    items = choices.value if isinstance(choices.value, tuple) else (choices.value,)
    kept: list[ConstantValue] = []
    for item in items:
        number = _number(item)
        cast = item if number is None else compared_number(number, operand.scalar)
        if cast is not None:
            kept.append(cast)
    return Constant(tuple(kept), target)


def _exact_integer(value: int | float, target: Scalar) -> int | None:
    if isinstance(value, float):
        if not math.isfinite(value) or not value.is_integer():
            return None
        value = int(value)
    low, high = INTEGER_RANGES[target]
    return value if low <= value <= high else None


def _number(value: ConstantValue) -> int | float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
