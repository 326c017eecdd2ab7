"""When two rows are equal: one comparator for merges, diffs and the change feed.

Null equals only null. Floating-point numbers are compared by bit pattern: a NaN equals the same
NaN, and 0.0 is not -0.0. Text is compared byte by byte, lists element by element with null elements
and order significant. Arrow's own equality follows other rules and is not used for numbers.

Both sides are columns of the same type with rows at the same places; what comes back marks the
rows that differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Mask: TypeAlias = npt.NDArray[np.bool_]

_BITS: Final = {
    pa.float16(): pa.int16(),
    pa.float32(): pa.int32(),
    pa.float64(): pa.int64(),
}


def differing_rows(left: pa.Table, right: pa.Table, columns: Sequence[str]) -> Mask:
    """Mark the rows that differ in any of the columns.

    >>> nan = float("nan")
    >>> left = pa.table({"x": [nan, 0.0, None, 1.0]})
    >>> right = pa.table({"x": [nan, -0.0, None, 1.0]})
    >>> differing_rows(left, right, ["x"]).tolist()
    [False, True, False, False]
    """
    differ = np.zeros(left.num_rows, np.bool_)
    for name in columns:
        differ |= differing_values(_flat(left[name]), _flat(right[name]))
    return differ


def differing_values(left: pa.Array, right: pa.Array) -> Mask:
    """Mark the places at which two columns differ."""
    left_valid, right_valid = _mask(left.is_valid()), _mask(right.is_valid())
    differ: Mask = (left_valid != right_valid) | (
        left_valid & right_valid & _differing_present(left, right, left_valid & right_valid)
    )
    return differ


def _differing_present(left: pa.Array, right: pa.Array, both: Mask) -> Mask:
    """Mark differing values; what is said of places with a null means nothing."""
    kind = left.type
    if pa.types.is_fixed_size_list(kind):
        return _differing_vectors(left, right)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _differing_lists(left, right, both)
    if pa.types.is_struct(kind):
        differ = np.zeros(len(left), np.bool_)
        for number in range(kind.num_fields):
            differ |= differing_values(left.field(number), right.field(number))
        return differ
    if kind in _BITS:
        left, right = left.view(_BITS[kind]), right.view(_BITS[kind])
    return _mask(pc.not_equal(left, right).fill_null(False))


def _differing_vectors(left: pa.Array, right: pa.Array) -> Mask:
    width = left.type.list_size
    if not width:
        return np.zeros(len(left), np.bool_)
    differ = differing_values(_children(left, width), _children(right, width))
    return np.asarray(differ.reshape(len(left), width).any(axis=1))


def _children(vectors: pa.FixedSizeListArray, width: int) -> pa.Array:
    return vectors.values.slice(vectors.offset * width, len(vectors) * width)


def _differing_lists(left: pa.Array, right: pa.Array, both: Mask) -> Mask:
    left_lengths = pc.list_value_length(left).fill_null(0).to_numpy(zero_copy_only=False)
    right_lengths = pc.list_value_length(right).fill_null(0).to_numpy(zero_copy_only=False)
    differ: Mask = both & (left_lengths != right_lengths)
    rows = np.flatnonzero(both & ~differ)
    taken = pa.array(rows)
    elements = differing_values(left.take(taken).flatten(), right.take(taken).flatten())
    differ[np.repeat(rows, left_lengths[rows])[elements]] = True
    return differ


def _flat(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    if isinstance(column, pa.Array):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _mask(column: pa.Array) -> Mask:
    mask: Mask = column.to_numpy(zero_copy_only=False)
    return mask
