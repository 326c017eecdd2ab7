"""Comparing two columns, or a column and one value, of types that may differ.

| types | order |
|---|---|
| numbers | by value, exactly: no integer is rounded to meet a float, no sign is lost |
| floats | IEEE: NaN differs from everything, also itself, and has no order; -0 equals 0 |
| String | by UTF-8 bytes |
| Bool | false below true |
| Date, DateTime | by their number of days or milliseconds |
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.query.language.tree import Comparator

Datum: TypeAlias = pa.Array | pa.ChunkedArray | pa.Scalar
_Numbers: TypeAlias = npt.NDArray[np.integer | np.floating]
_Signs: TypeAlias = npt.NDArray[np.int8]

_ARROW: Final[dict[Comparator, Callable[[Datum, Datum], Datum]]] = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_UNORDERED: Final = 2
"""The sign between two numbers of which one is not a number."""

_SIGNS: Final[dict[Comparator, tuple[int, ...]]] = {
    "=": (0,),
    "!=": (-1, 1, _UNORDERED),
    "<": (-1,),
    "<=": (-1, 0),
    ">": (1,),
    ">=": (1, 0),
}


def compare(left: Datum, operator: Comparator, right: Datum) -> Datum:
    """Return for each row whether the comparison holds; null where an operand is.

    >>> import pyarrow as pa
    >>> column = pa.array([2**53 + 1, None])
    >>> compare(column, "=", pa.scalar(float(2**53))).to_pylist()
    [False, None]
    """
    left, right = _plain(left), _plain(right)
    if left.type != right.type:
        if _needs_care(left.type, right.type):
            return _by_sign(left, operator, right)
        left, right = _widened(left), _widened(right)
    return _ARROW[operator](left, right)


def equal_values(left: pa.Array, right: Datum) -> pa.Array:
    """Return for each row whether both values are there and equal; never null."""
    same = compare(left, "=", right)
    return pc.fill_null(same, False)


def _plain(datum: Datum) -> Datum:
    if pa.types.is_date32(datum.type):
        return datum.cast(pa.int32())
    if pa.types.is_date64(datum.type):
        return datum.cast(pa.int64())
    if pa.types.is_boolean(datum.type):
        return datum.cast(pa.uint8())
    return datum


def _needs_care(left: pa.DataType, right: pa.DataType) -> bool:
    """Whether no numeric type holds all values of both."""
    kinds = {left, right}
    if pa.uint64() in kinds:
        return bool(kinds - {pa.uint64(), pa.uint32()})
    return pa.int64() in kinds and any(pa.types.is_floating(kind) for kind in kinds)


def _widened(datum: Datum) -> Datum:
    if pa.types.is_floating(datum.type):
        return datum.cast(pa.float64())
    if datum.type == pa.uint64():
        return datum
    if datum.type == pa.uint32():
        # Needed next to a 64-bit unsigned column; Arrow converts signed and float ones.
        return datum
    if pa.types.is_integer(datum.type):
        return datum.cast(pa.int64())
    return datum


def _by_sign(left: Datum, operator: Comparator, right: Datum) -> Datum:
    signs = _signs(_numbers(left), _numbers(right))
    holds = np.isin(signs, _SIGNS[operator])
    known = pc.and_(pc.is_valid(left), pc.is_valid(right))
    if isinstance(left, pa.Scalar) and isinstance(right, pa.Scalar):
        return pa.scalar(bool(holds[0]) if known.as_py() else None, pa.bool_())
    return pc.if_else(known, pa.array(holds), pa.scalar(None, pa.bool_()))


def _numbers(datum: Datum) -> _Numbers:
    if isinstance(datum, pa.Scalar):
        value = datum.as_py()
        return np.array([0 if value is None else value], datum.type.to_pandas_dtype())
    column = datum.combine_chunks() if isinstance(datum, pa.ChunkedArray) else datum
    # With nulls, NumPy would turn integers into floats; the filler is masked afterwards.
    filled: _Numbers = pc.fill_null(column, pa.scalar(0, column.type)).to_numpy(
        zero_copy_only=False
    )
    return filled


def _signs(left: _Numbers, right: _Numbers) -> _Signs:
    left_is_float, right_is_float = left.dtype.kind == "f", right.dtype.kind == "f"
    if left_is_float and not right_is_float:
        return _opposite(_integer_and_float(right, left))
    if right_is_float and not left_is_float:
        return _integer_and_float(left, right)
    return _signed_and_unsigned(left, right)


def _opposite(signs: _Signs) -> _Signs:
    return np.where(signs == _UNORDERED, signs, -signs).astype(np.int8)


def _signed_and_unsigned(left: _Numbers, right: _Numbers) -> _Signs:
    if right.dtype.kind != "u":
        return (
            _opposite(_signed_and_unsigned(right, left))
            if left.dtype.kind == "u"
            else _order(left, right)
        )
    if left.dtype.kind == "u":
        return _order(left.astype(np.uint64), right.astype(np.uint64))
    magnitude = np.where(left < 0, 0, left).astype(np.uint64)
    signs = _order(magnitude, right.astype(np.uint64))
    return np.where(left < 0, np.int8(-1), signs).astype(np.int8)


def _integer_and_float(integers: _Numbers, floats: _Numbers) -> _Signs:
    """Compare with the whole part below the float, then decide equal ones by its fraction."""
    wide = np.uint64 if integers.dtype.kind == "u" else np.int64
    low, high = (0.0, 2.0**64) if wide is np.uint64 else (-(2.0**63), 2.0**63)
    values = floats.astype(np.float64)
    inside = (values >= low) & (values < high)
    floors = np.floor(np.where(inside, values, 0.0))
    signs = _order(integers.astype(wide), floors.astype(wide))
    has_fraction = inside & (values > floors)
    signs = np.where((signs == 0) & has_fraction, -1, signs)
    signs = np.where(values >= high, -1, signs)
    signs = np.where(values < low, 1, signs)
    return np.where(np.isnan(values), _UNORDERED, signs).astype(np.int8)


def _order(left: _Numbers, right: _Numbers) -> _Signs:
    return (left > right).astype(np.int8) - (left < right).astype(np.int8)
