"""Hashes of whole rows: rows that are equal (`schema/values/equality.py`) have equal pairs.

1. Two rows that differ share a pair with a chance of 2**-128, so a pair stands for its row.
2. Values are hashed as they are stored: floats by their bits, texts by their bytes, blobs by their
   contents, and null as none of these.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.schema.values.ids import spell
from omnigraph.schema.values.numeric import valid_mask
from omnigraph.write.load.check.hashing import Hashes, HashPairs, HashScheme
from omnigraph.write.stage.columns import Integers, flat

_MASK_COLUMNS: Final = 64
_SAME_WIDTH: Final = {32: (pa.int32(), np.uint32), 64: (pa.int64(), np.uint64)}


def hash_rows(scheme: HashScheme, columns: Sequence[pa.Array], count: int) -> HashPairs:
    """Return one pair per row of some columns, null where they are null."""
    parts = [_values(scheme, column) for column in columns]
    for start in range(0, len(columns), _MASK_COLUMNS):
        valid = np.zeros(count, np.uint64)
        for place, column in enumerate(columns[start : start + _MASK_COLUMNS]):
            valid |= valid_mask(column).astype(np.uint64) << np.uint64(place)
        parts.append(HashPairs(valid, valid))
    return scheme.together(parts, count)


def hash_tuples(scheme: HashScheme, columns: Sequence[pa.Array], count: int) -> HashPairs:
    """Return one pair per tuple, as `@unique` compares them; columns have no nulls that matter."""
    texts = [spell(flat(column)).fill_null("") for column in columns]
    return scheme.together([scheme.pairs(column) for column in texts], count)


def _values(scheme: HashScheme, column: pa.Array) -> HashPairs:
    """Hash the values of a column; those of null rows are all the same."""
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return scheme.pairs(column.fill_null(""))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _lists(scheme, column)
    if pa.types.is_fixed_size_list(kind):
        return _vectors(scheme, column)
    if isinstance(column, pa.ExtensionArray):
        return _values(scheme, column.storage)
    if pa.types.is_struct(kind):
        return _blobs(scheme, column)
    bits = _bits(column)
    return HashPairs(bits, bits)


def _bits(column: pa.Array) -> Hashes:
    """Return the bits of numbers, dates and truth values; zero for null."""
    if pa.types.is_boolean(column.type):
        return np.asarray(column.fill_null(False)).astype(np.uint64)
    arrow, numpy = _SAME_WIDTH[column.type.bit_width]
    numbers = column.view(arrow).fill_null(0).to_numpy()
    bits: Hashes = numbers.view(numpy).astype(np.uint64)
    return bits


def _lists(scheme: HashScheme, column: pa.Array) -> HashPairs:
    lengths: Integers = np.asarray(pc.list_value_length(column).fill_null(0), np.int64)
    ends = np.cumsum(lengths)
    starts = ends - lengths
    items = pc.list_flatten(column)
    places = np.arange(len(items)) - np.repeat(starts, lengths)
    numbers = places.astype(np.uint64)
    placed = scheme.together(
        [hash_rows(scheme, [items], len(items)), HashPairs(numbers, numbers)], len(items)
    )
    sums = HashPairs(_sums(placed.first, starts, ends), _sums(placed.second, starts, ends))
    sizes = lengths.astype(np.uint64)
    return scheme.together([sums, HashPairs(sizes, sizes)], len(column))


def _sums(hashes: Hashes, starts: Integers, ends: Integers) -> Hashes:
    """Add up consecutive hashes, modulo 2**64."""
    totals = np.zeros(len(hashes) + 1, np.uint64)
    np.cumsum(hashes, out=totals[1:])
    return totals[ends] - totals[starts]


def _vectors(scheme: HashScheme, column: pa.Array) -> HashPairs:
    size = column.type.list_size
    count = len(column)
    items = column.values.slice(column.offset * size, count * size)
    bits = _bits(items).reshape(count, size)
    if column.null_count:
        bits[~valid_mask(column)] = 0
    components = (bits[:, place] for place in range(size))
    return scheme.together([HashPairs(words, words) for words in components], count)


def _blobs(scheme: HashScheme, column: pa.Array) -> HashPairs:
    contents = scheme.contents(pc.struct_field(column, "data").to_pylist())
    uris = pc.struct_field(column, "uri")
    return scheme.together([contents, hash_rows(scheme, [uris], len(column))], len(column))
