"""Which rows of two versions differ, by the rule of `omnigraph.schema.values.equality`.

Both sides have their rows at the same positions; the returned mask marks the rows that differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.schema.values.equality import equal_rows

Mask: TypeAlias = npt.NDArray[np.bool_]


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
    """Mark the positions at which two columns differ."""
    return ~equal_rows(left, right)


def to_mask(column: pa.Array) -> Mask:
    """Return a boolean column without nulls as a mask."""
    mask: Mask = column.to_numpy(zero_copy_only=False)
    return mask


def _flat(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
