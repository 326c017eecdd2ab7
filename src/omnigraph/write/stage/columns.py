"""Columns of any length as sets and tuples: membership, codes, duplicates.

A handful of texts is treated in Python: a call of the library costs more than they do, above all
while other threads of the same write wait for the interpreter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Column: TypeAlias = pa.Array | pa.ChunkedArray
Mask = npt.NDArray[np.bool_]
Integers = npt.NDArray[np.int64]

_OFFSETS_MAX: Final = (1 << 31) - 1
_CODES_MAX: Final = 1 << 62
_HANDFUL: Final = 16
SLAB_ROWS: Final = 1 << 20
"""Rows that are looked at together: a hash table is built per slab, so slabs are large."""


def flat(column: Column) -> pa.Array:
    """Return a column as one array; text beyond 2 GiB gets large offsets."""
    if isinstance(column, pa.Array):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    if pa.types.is_string(column.type) and column.nbytes > _OFFSETS_MAX:
        column = column.cast(pa.large_utf8())
    return column.combine_chunks()


def concatenated(*columns: Column) -> pa.Array:
    """Return text columns one after another."""
    chunks = [
        chunk
        for column in columns
        for chunk in ([column] if isinstance(column, pa.Array) else column.chunks)
    ]
    kind = pa.utf8() if all(pa.types.is_string(chunk.type) for chunk in chunks) else pa.large_utf8()
    return flat(pa.chunked_array([chunk.cast(kind) for chunk in chunks], kind))


def places_in(values: Column, value_set: Column) -> pa.Array:
    """Return, for every value, its first position in a set, or null."""
    wanted, known = flat(values), flat(value_set)
    if wanted.type != known.type:
        wanted, known = wanted.cast(pa.large_utf8()), known.cast(pa.large_utf8())
    return pc.index_in(wanted, value_set=known, skip_nulls=True)


def distinct(column: Column) -> pa.Array:
    """Return every value once, in the order in which they appear."""
    if _is_handful(column):
        return pa.array(dict.fromkeys(column.to_pylist()), column.type)
    return pc.unique(column)


def is_in(values: Column, value_set: Column) -> Mask:
    """Return which values are in a set; null never is."""
    if not len(value_set):
        return np.zeros(len(values), np.bool_)
    if _is_handful(values) and _is_handful(value_set):
        few = set(value_set.to_pylist()) - {None}
        return np.array([value in few for value in values.to_pylist()], np.bool_)
    wanted, known = flat(values), flat(value_set)
    if wanted.type != known.type:
        wanted, known = wanted.cast(pa.large_utf8()), known.cast(pa.large_utf8())
    return to_mask(pc.is_in(wanted, value_set=known, skip_nulls=True))


def without(values: Column, value_set: Column) -> pa.Array:
    """Return the values that are not in a set."""
    column = flat(values)
    if not len(value_set):
        return column
    if _is_handful(column) and _is_handful(value_set):
        few = set(value_set.to_pylist()) - {None}
        return pa.array([value for value in column.to_pylist() if value not in few], column.type)
    return column.filter(pa.array(~is_in(column, value_set)))


def _is_handful(column: Column) -> bool:
    return len(column) <= _HANDFUL and pa.types.is_string(column.type)


def to_mask(column: pa.Array) -> Mask:
    """Return a boolean column without nulls as a mask."""
    mask: Mask = column.to_numpy(zero_copy_only=False)
    return mask


def tuple_codes(columns: Sequence[Column]) -> tuple[Integers, Mask, int]:
    """Return a number for every tuple, the same one for equal tuples.

    Returns the numbers, a mask of the tuples without a null member, and an upper bound for the
    numbers. The number of a tuple with a null member means nothing.
    """
    codes: Integers | None = None
    valid: Mask | None = None
    count = 1
    for column in columns:
        encoded = flat(column).dictionary_encode()
        own = encoded.indices.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        own_valid = to_mask(encoded.indices.is_valid())
        own_count = max(1, len(encoded.dictionary))
        if codes is None or valid is None:
            codes, valid, count = own, own_valid, own_count
            continue
        if count * own_count > _CODES_MAX:
            distinct, codes = np.unique(codes, return_inverse=True)
            count = len(distinct)
        codes = codes * own_count + own
        valid &= own_valid
        count *= own_count
    if codes is None or valid is None:
        raise ValueError("a tuple has at least one member")
    return codes, valid, count


def repeated(columns: Sequence[Column]) -> tuple[Integers, Integers]:
    """Return the rows whose tuple occurred before, and for each the row of its first occurrence.

    Both are in row order; tuples with a null member never repeat.
    """
    if len(columns) == 1 and _all_differ(columns[0]):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    codes, valid, _ = tuple_codes(columns)
    rows = np.flatnonzero(valid)
    _, first, inverse = np.unique(codes[rows], return_index=True, return_inverse=True)
    first_rows = rows[first][inverse]
    again = first_rows != rows
    return rows[again], first_rows[again]


def last_rows(column: Column) -> Integers | None:
    """Return the rows that stay when the last of equal values wins, in row order.

    None when all values differ.
    """
    if _all_differ(column):
        return None
    codes, _, _ = tuple_codes([column])
    _, from_end = np.unique(codes[::-1], return_index=True)
    last: Integers = np.sort(len(codes) - 1 - from_end)
    return last


def _all_differ(column: Column) -> bool:
    distinct = pc.count_distinct(column, mode="only_valid").as_py()
    return bool(distinct == len(column) - column.null_count)


def slabs(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, rows_min: int | None = None
) -> Iterator[pa.Table]:
    """Gather batches into tables of about `rows_min` rows, `SLAB_ROWS` if it is not given."""
    wanted = SLAB_ROWS if rows_min is None else rows_min
    gathered: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        gathered.append(batch)
        rows += batch.num_rows
        if rows >= wanted:
            yield pa.Table.from_batches(gathered, schema)
            gathered, rows = [], 0
    if gathered:
        yield pa.Table.from_batches(gathered, schema)
