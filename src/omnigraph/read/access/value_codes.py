"""Columns as small numbers that sort, compare and group as the values do.

1. Equal values have equal codes, a smaller value a smaller code. Null is the smallest: -1.
2. Text sorts by bytes, `false` before `true`, NaN after every number, -0 equals 0.
3. Lists compare element by element, a shorter one before its extensions.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.dataclass import dataclass
from omnigraph.read.row_table import dense_codes

NULL_CODE = -1


@dataclass(frozen=True, eq=False)
class Coded:
    """A column as codes, and the distinct values that they stand for, ascending."""

    codes: npt.NDArray[np.int64]
    values: pa.Array


def coded(column: pa.Array) -> Coded:
    """Return the distinct values of a column numbered in their order.

    >>> found = coded(pa.array(["b", None, "a", "b"]))
    >>> found.codes.tolist(), found.values.to_pylist()
    ([1, -1, 0, 1], ['a', 'b'])
    """
    if pa.types.is_nested(column.type):
        return _coded_lists(column)
    encoded = _normal(column).dictionary_encode()
    values = encoded.dictionary
    order = pc.sort_indices(_sortable(values))
    ranks = np.empty(len(values), np.int64)
    ranks[order.to_numpy()] = np.arange(len(values))
    indices = pc.fill_null(encoded.indices, NULL_CODE).to_numpy(zero_copy_only=False)
    codes = np.append(ranks, NULL_CODE)[indices]
    return Coded(codes, _restored(values.take(order), column.type))


def _normal(column: pa.Array) -> pa.Array:
    if pa.types.is_floating(column.type):
        # Adding zero turns -0 into 0, and changes nothing else.
        return pc.add(column, pa.scalar(0.0, column.type))
    if pa.types.is_date64(column.type):
        return column.view(pa.int64())
    return column


def _sortable(values: pa.Array) -> pa.Array:
    return values.cast(pa.uint8()) if pa.types.is_boolean(values.type) else values


def _restored(values: pa.Array, kind: pa.DataType) -> pa.Array:
    return values.view(kind) if pa.types.is_date64(kind) else values


def _coded_lists(column: pa.Array) -> Coded:
    items = coded(column.flatten())
    present = column.drop_null()
    lengths = _list_lengths(present)
    ends = np.cumsum(lengths)
    pairs = zip((ends - lengths).tolist(), ends.tolist(), strict=True)
    numbers = items.codes.tolist()
    keys = [tuple(numbers[start:end]) for start, end in pairs]
    ordered = sorted(set(keys))
    rank = {key: number for number, key in enumerate(ordered)}
    first: dict[tuple[int, ...], int] = {}
    for position, key in enumerate(keys):
        first.setdefault(key, position)
    codes = np.full(len(column), NULL_CODE, np.int64)
    is_present = column.is_valid().to_numpy(zero_copy_only=False)
    codes[is_present] = np.array([rank[key] for key in keys], np.int64)
    picks = pa.array([first[key] for key in ordered], pa.int64())
    return Coded(codes, present.take(picks))


def _list_lengths(lists: pa.Array) -> npt.NDArray[np.int64]:
    if pa.types.is_fixed_size_list(lists.type):
        return np.full(len(lists), lists.type.list_size, np.int64)
    lengths = lists.value_lengths().to_numpy(zero_copy_only=False)
    return np.asarray(lengths, np.int64)


def group_codes(columns: Sequence[npt.NDArray[np.int64]], count: int) -> npt.NDArray[np.int64]:
    """Return a number for each distinct tuple of codes; one group when there are no columns."""
    if not columns:
        return np.zeros(count, np.int64)
    first = columns[0]
    has_null = len(first) > 0 and int(first.min()) == NULL_CODE
    groups = dense_codes(first - NULL_CODE if has_null else first)
    for column in columns[1:]:
        width = int(column.max(initial=NULL_CODE)) + 2
        groups = dense_codes(groups * width + (column - NULL_CODE))
    return groups
