"""When two stored rows are equal, value by value.

| kind | equal |
|---|---|
| null | only null |
| integers, Bool, Date, DateTime | the same value |
| F32, F64 | the same bits: a NaN equals itself, `0.0` and `-0.0` differ |
| String, enum | the same bytes |
| list | the same length, and each element by its own rule |
| Vector | the same bits in every component |

Blobs are not compared here: their bytes are not in the column. Arrow's own comparison is another
rule (NaN differs from itself, both zeros are equal), so floats are compared as integers of their
width.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.schema.values.numeric import valid_mask
from omnigraph.schema.values.row_errors import Mask, Rows


def equal_rows(left: pa.Array, right: pa.Array) -> Mask:
    """Compare two columns of the same type and length, row by row.

    >>> nan = float("nan")
    >>> equal_rows(pa.array([nan, 0.0, None, 1.0]), pa.array([nan, -0.0, None, None])).tolist()
    [True, False, True, False]
    """
    if left.type != right.type or len(left) != len(right):
        found = f"{len(left)} {left.type} and {len(right)} {right.type}"
        raise ValueError(f"columns that cannot be compared: {found}")
    left_valid, right_valid = valid_mask(left), valid_mask(right)
    kind = left.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        values = _equal_lists(left, right, left_valid & right_valid)
    elif pa.types.is_fixed_size_list(kind):
        values = _equal_vectors(left, right)
    else:
        values = _equal_values(left, right)
    result: Mask = np.where(left_valid & right_valid, values, left_valid == right_valid)
    return result


def _equal_values(left: pa.Array, right: pa.Array) -> Mask:
    """Compare scalars; rows with a null may have any answer."""
    if pa.types.is_floating(left.type):
        bits = pa.int32() if left.type.bit_width == 32 else pa.int64()
        left, right = left.view(bits), right.view(bits)
    equal: Mask = pc.equal(left, right).fill_null(False).to_numpy(zero_copy_only=False)
    return equal


def _equal_vectors(left: pa.Array, right: pa.Array) -> Mask:
    size = left.type.list_size
    if not size or not len(left):
        return np.ones(len(left), np.bool_)
    equal = equal_rows(_elements(left), _elements(right)).reshape(len(left), size)
    return np.asarray(equal.all(axis=1))


def _elements(vectors: pa.Array) -> pa.Array:
    """Return the elements of all rows, those of null rows included."""
    size = vectors.type.list_size
    return vectors.values.slice(vectors.offset * size, len(vectors) * size)


def _equal_lists(left: pa.Array, right: pa.Array, valid: Mask) -> Mask:
    left_lengths = _lengths(left)
    same = valid & (left_lengths == _lengths(right))
    equal: Mask = same.copy()
    rows = np.flatnonzero(same & (left_lengths > 0))
    if not len(rows):
        return equal
    chosen = pa.array(rows)
    elements = equal_rows(left.take(chosen).flatten(), right.take(chosen).flatten())
    ends = np.cumsum(left_lengths[rows])
    starts = ends - left_lengths[rows]
    equal[rows] = np.logical_and.reduceat(elements, starts)
    return equal


def _lengths(lists: pa.Array) -> Rows:
    lengths = pc.list_value_length(lists).fill_null(0)
    return np.asarray(lengths, np.int64)
