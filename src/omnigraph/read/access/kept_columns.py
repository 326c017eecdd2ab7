"""Columns that stay in memory between queries, by published version of their dataset.

1. A published version never changes, so what is kept of it holds for ever. A new version starts
   with nothing; the old one goes when room is needed.
2. A column is kept when a query has read all of it anyway, or when some rows of it were fetched
   several times: then it is read as a whole once.
3. Vectors, lists and blobs are never kept. Memory is bounded by bytes for all columns together,
   least recently used first; no column may take more than a quarter of it.
4. What is kept is derived: losing it costs time only.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa

from omnigraph.errors import InvalidInputError
from omnigraph.manifest.rows import Entry
from omnigraph.read.access.codes import Coded, coded
from omnigraph.read.rows import NULL, RowIds
from omnigraph.search.cache import BoundedCache

MEMORY_MIB: Final = "OMNIGRAPH_READ_COLUMNS_MIB"
MEMORY_MIB_DEFAULT: Final = 768
FETCHES_MIN: Final = 4
"""Fetches of one column before it is read as a whole."""
_FETCHES_PER_READ: Final = 256
_ROWS_MAX: Final = 16_000_000
_COUNTERS_MAX: Final = 4_096
_SHARE_MAX: Final = 4
_BYTES_PER_MIB: Final = 1 << 20


class ReadMemoryError(InvalidInputError):
    """The environment variable for the memory of kept columns has a value that means nothing."""

    code = "OG-READ-MEMORY"
    hint = "unset it, or give a number such as 1024"

    def __init__(self, value: str) -> None:
        self.value = value
        super().__init__(f"{MEMORY_MIB} must be a whole number of MiB, and is '{value}'")


def key_memory(environment: Mapping[str, str] = os.environ) -> int:
    """Return how many bytes columns for look-ups by text may take: a third of all."""
    return total_memory(environment) // 3


def column_memory(environment: Mapping[str, str] = os.environ) -> int:
    """Return how many bytes kept columns may take: what look-ups leave."""
    return total_memory(environment) - key_memory(environment)


def total_memory(environment: Mapping[str, str] = os.environ) -> int:
    """Return how many bytes of columns may stay in memory; an empty value is no value.

    >>> total_memory({MEMORY_MIB: "2"})
    2097152
    """
    text = environment.get(MEMORY_MIB, "").strip()
    if not text:
        return MEMORY_MIB_DEFAULT * _BYTES_PER_MIB
    if not text.isascii() or not text.isdigit():
        raise ReadMemoryError(text)
    return int(text) * _BYTES_PER_MIB


@dataclass(frozen=True, eq=False)
class Numbers:
    """The row ids of one dataset version, ascending: which position a row has in kept columns."""

    row_ids: RowIds

    @property
    def count(self) -> int:
        """How many rows there are."""
        return len(self.row_ids)

    @cached_property
    def _is_dense(self) -> bool:
        return self.count > 0 and int(self.row_ids[-1] - self.row_ids[0]) == self.count - 1

    def positions(self, row_ids: RowIds) -> RowIds | None:
        """Return where rows are, in any order and `NULL` for `NULL`; None if one is unknown."""
        if row_ids is self.row_ids or not len(row_ids):
            return np.arange(len(row_ids), dtype=np.int64)
        if not self.count:
            return None
        is_null = row_ids == NULL
        has_null = bool(is_null.any())
        if self._is_dense:
            found = row_ids - self.row_ids[0]
            is_known = (found >= 0) & (found < self.count)
        else:
            found = np.searchsorted(self.row_ids, row_ids)
            found[found == self.count] = 0
            is_known = self.row_ids[found] == row_ids
        if has_null:
            found = np.where(is_null, NULL, found)
            is_known |= is_null
        return found if bool(is_known.all()) else None


class KeptColumns:
    """The kept columns of one graph. Safe to share between threads."""

    def __init__(self, *, bytes_max: int | None = None, fetches_min: int = FETCHES_MIN) -> None:
        self._bytes_max = column_memory() if bytes_max is None else bytes_max
        self._fetches_min = fetches_min
        self._kept: BoundedCache[pa.Array | Numbers | Coded] = BoundedCache(self._bytes_max)
        self._asked: BoundedCache[int] = BoundedCache(_COUNTERS_MAX)
        self._lock = threading.Lock()

    @property
    def nbytes(self) -> int:
        """Bytes of everything that is kept."""
        return self._kept.size

    def numbers(self, entry: Entry) -> Numbers | None:
        """Return the row ids of a dataset version if they are in memory."""
        found = self._kept.get(entry.at)
        return found if isinstance(found, Numbers) else None

    def column(self, entry: Entry, name: str) -> pa.Array | None:
        """Return a column by ascending row id if it is in memory, and the row ids are."""
        if self.numbers(entry) is None:
            return None
        return self._kept.get((entry.at, name))

    def codes(self, entry: Entry, name: str) -> Coded | None:
        """Return the codes of a kept column, for grouping; None when it is not kept."""
        key = (entry.at, name, "codes")
        found = self._kept.get(key)
        if isinstance(found, Coded):
            return found
        column = self.column(entry, name)
        if column is None:
            return None
        made = coded(column)
        self._put(key, made, made.codes.nbytes + made.values.nbytes)
        return made

    def is_due(self, entry: Entry, names: Sequence[str]) -> bool:
        """Count a fetch of some columns, and say whether all are worth reading as a whole now."""
        if not self._bytes_max or entry.row_count > _ROWS_MAX:
            return False
        with self._lock:
            counts = [self._count((entry.at, name)) for name in names]
        # Seldom, not each time: a column that cannot stay is not read again and again.
        return min(counts) % _FETCHES_PER_READ == self._fetches_min

    def _count(self, key: tuple[object, str]) -> int:
        asked = (self._asked.get(key) or 0) + 1
        self._asked.put(key, asked, 1)
        return asked

    def keep(self, entry: Entry, row_ids: RowIds, columns: Mapping[str, pa.Array]) -> None:
        """Keep whole columns of a dataset version, given by ascending row id."""
        version = entry.at
        if self.numbers(entry) is None:
            # Shared by all queries from now on: nobody may change it.
            row_ids.setflags(write=False)
            self._put(version, Numbers(row_ids), row_ids.nbytes)
        for name, column in columns.items():
            if not pa.types.is_nested(column.type) and self.column(entry, name) is None:
                self._put((version, name), column, column.nbytes)

    def _put(self, key: object, value: pa.Array | Numbers | Coded, size: int) -> None:
        if size * _SHARE_MAX <= self._bytes_max:
            self._kept.put(key, value, size)
