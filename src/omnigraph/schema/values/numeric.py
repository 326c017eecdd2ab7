"""Exact integers and rounded floats of a column, in NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.dataclass import dataclass
from omnigraph.schema.values.row_errors import Mask
from omnigraph.values import Scalar

I64_MIN: Final = -(2**63)
I64_MAX: Final = 2**63 - 1
U64_MAX: Final = 2**64 - 1

BOUNDS: Final[dict[Scalar, tuple[int, int]]] = {
    Scalar.I32: (-(2**31), 2**31 - 1),
    Scalar.I64: (I64_MIN, I64_MAX),
    Scalar.U32: (0, 2**32 - 1),
    Scalar.U64: (0, U64_MAX),
}

_NUMPY: Final[dict[Scalar, type[np.generic]]] = {
    Scalar.I32: np.int32,
    Scalar.I64: np.int64,
    Scalar.U32: np.uint32,
    Scalar.U64: np.uint64,
}


@dataclass(frozen=True)
class Integers:
    """Whole numbers from -2^63 to 2^64-1.

    `bits` holds the low 64 bits. Where `is_above` is set the number is 2^63 or more and the bits
    are those of an unsigned number; `None` = nowhere. `is_beyond` marks numbers that fit neither.
    """

    bits: npt.NDArray[np.int64]
    is_above: Mask | None = None
    is_beyond: Mask | None = None

    def outside(self, scalar: Scalar) -> Mask:
        """Which numbers do not fit into an integer type."""
        bad = np.zeros(len(self.bits), np.bool_) if self.is_beyond is None else self.is_beyond
        low, high = BOUNDS[scalar]
        if scalar is Scalar.U64:
            negative = self.bits < 0
            return bad | (negative if self.is_above is None else negative & ~self.is_above)
        if scalar is not Scalar.I64:
            bad = bad | (self.bits < low) | (self.bits > high)
        return bad if self.is_above is None else bad | self.is_above

    def cast(self, scalar: Scalar) -> npt.NDArray[np.generic]:
        """Return the numbers in the type of the column; others are undefined."""
        return self.bits.astype(_NUMPY[scalar])

    def rounded(self, dtype: type[np.float32] | type[np.float64]) -> npt.NDArray[np.floating]:
        """Round to the nearest float of a width, in one step."""
        signed: npt.NDArray[np.floating] = self.bits.astype(dtype)
        if self.is_above is None:
            return signed
        return np.where(self.is_above, self.bits.view(np.uint64).astype(dtype), signed)


def exact_integers(values: Sequence[object]) -> tuple[Integers, Mask]:
    """Read Python integers and None; the mask says where there is a number."""
    try:
        column = pa.array(values, pa.int64())
    except OverflowError:
        return _wide_integers(values)
    return Integers(filled(column, 0)), valid_mask(column)


def _wide_integers(values: Sequence[object]) -> tuple[Integers, Mask]:
    numbers = np.fromiter(values, object, len(values))
    valid: Mask = np.fromiter((value is not None for value in values), np.bool_, len(values))
    numbers[~valid] = 0
    above = np.greater(numbers, I64_MAX).astype(np.bool_)
    beyond = np.greater(numbers, U64_MAX).astype(np.bool_)
    beyond |= np.less(numbers, I64_MIN).astype(np.bool_)
    numbers[above] -= 2**64
    numbers[beyond] = 0
    return Integers(numbers.astype(np.int64), above & ~beyond, beyond), valid


def valid_mask(column: pa.Array) -> Mask:
    """Return where a column has a value."""
    if not column.null_count:
        return np.ones(len(column), np.bool_)
    mask: Mask = column.is_valid().to_numpy(zero_copy_only=False)
    return mask


def filled(column: pa.Array, value: float) -> npt.NDArray[np.int64]:
    """Return a numeric column as a NumPy array, nulls replaced."""
    whole = column.fill_null(value) if column.null_count else column
    result: npt.NDArray[np.int64] = whole.to_numpy(zero_copy_only=False)
    return result


def to_single(doubles: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
    """Round to the nearest F32; what does not fit becomes infinite."""
    with np.errstate(over="ignore"):
        return doubles.astype(np.float32)


def nullable(numbers: npt.NDArray[np.generic], valid: Mask) -> pa.Array:
    """Build an Arrow column that is null outside of `valid`."""
    return pa.array(numbers) if valid.all() else pa.array(numbers, mask=~valid)
