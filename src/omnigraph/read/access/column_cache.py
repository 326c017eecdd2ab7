"""Columns that stay in memory between queries, by published version of their dataset.

1. A published version never changes, so a cached column of it is valid for ever. A new version
   starts with nothing. Of one lineage only the `RECENT_VERSIONS_MAX` versions that were used last
   keep their columns.
2. A column is cached in up to three forms: its values, their codes for grouping, and a
   `TextLookup` for `property = text`. Values are cached when a query has read all of them anyway.
   Values and look-ups are also read as a whole once a column has been used several times.
3. Vectors, lists and blobs are never cached.
4. Memory is bounded by bytes, least recently used first: a third of it is for look-ups, the rest
   for values and codes, none of which may take more than a quarter of that rest.
5. Everything here is derived: losing it costs time only.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from omnigraph.cache import RECENT_VERSIONS_MAX, BoundedCache, BoundedCounter
from omnigraph.errors import InvalidInputError
from omnigraph.manifest.rows import Entry
from omnigraph.read.access.text_lookup import TextLookup
from omnigraph.read.access.value_codes import Coded, coded
from omnigraph.read.row_table import NULL, RowIds
from omnigraph.store.records import DatasetVersion

_V = TypeVar("_V")

MEMORY_MIB: Final = "OMNIGRAPH_READ_COLUMNS_MIB"
MEMORY_MIB_DEFAULT: Final = 768
USES_MIN: Final = 4
"""Uses of one column before it is read as a whole."""
_USES_PER_READ: Final = 256
_ROWS_MAX: Final = 16_000_000
_LOOKUP_ROWS_MAX: Final = 4_000_000
_COUNTERS_MAX: Final = 4_096
_LOOKUP_SHARE: Final = 3
_COLUMN_SHARES_MIN: Final = 4
_BYTES_PER_MIB: Final = 1 << 20


class ReadMemoryError(InvalidInputError):
    """The environment variable for the memory of cached columns is not a whole number."""

    code = "OG-READ-MEMORY"
    hint = "unset it, or give a number such as 1024"
    template = f"{MEMORY_MIB} must be a whole number of MiB, and is '{{value}}'"
    value: str


def column_memory(environment: Mapping[str, str] = os.environ) -> int:
    """Return how many bytes the cached columns of one graph may take; an empty value is no value.

    >>> column_memory({MEMORY_MIB: "2"})
    2097152
    """
    text = environment.get(MEMORY_MIB, "").strip()
    if not text:
        return MEMORY_MIB_DEFAULT * _BYTES_PER_MIB
    if not text.isascii() or not text.isdigit():
        raise ReadMemoryError(text)
    return int(text) * _BYTES_PER_MIB


@dataclass(frozen=True, eq=False)
class RowPositions:
    """The row ids of one dataset version, ascending: the position of each row in cached columns."""

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
        if len(row_ids) == 1:
            return self._position(row_ids)
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

    def _position(self, row_ids: RowIds) -> RowIds | None:
        """Return where one row is: less work than for many, and the most common case."""
        if row_ids[0] == NULL:
            return row_ids
        found = self.row_ids.searchsorted(row_ids)
        at = int(found[0])
        return found if at < self.count and self.row_ids[at] == row_ids[0] else None


class _Key(NamedTuple):
    """What a cached value was made from."""

    at: DatasetVersion
    form: Literal["rows", "values", "codes", "lookup"]
    column: str = ""


class ColumnCache:
    """The cached columns of one graph. Safe to share between threads."""

    def __init__(self, *, bytes_max: int | None = None, uses_min: int = USES_MIN) -> None:
        total = column_memory() if bytes_max is None else bytes_max
        self._uses_min = uses_min
        self._lookup_bytes_max = total // _LOOKUP_SHARE
        self._column_bytes_max = total - self._lookup_bytes_max
        self._columns: BoundedCache[pa.Array | RowPositions | Coded] = BoundedCache(
            self._column_bytes_max, shares_min=_COLUMN_SHARES_MIN
        )
        self._lookups: BoundedCache[TextLookup] = BoundedCache(self._lookup_bytes_max)
        self._uses = BoundedCounter(_COUNTERS_MAX)

    @property
    def nbytes(self) -> int:
        """Bytes of everything that is cached."""
        return self._columns.size + self._lookups.size

    @property
    def has_lookups(self) -> bool:
        """Whether there is any memory for look-ups."""
        return self._lookup_bytes_max > 0

    def row_positions(self, entry: Entry) -> RowPositions | None:
        """Return the row ids of a dataset version if they are cached."""
        found = self._columns.get(_Key(entry.at, "rows"))
        return found if isinstance(found, RowPositions) else None

    def column(self, entry: Entry, name: str) -> pa.Array | None:
        """Return a column by ascending row id if it is cached."""
        return self._columns.get(_Key(entry.at, "values", name))

    def codes(self, entry: Entry, name: str) -> Coded | None:
        """Return the codes of a cached column, for grouping; None when it is not cached."""
        key = _Key(entry.at, "codes", name)
        found = self._columns.get(key)
        if isinstance(found, Coded):
            return found
        column = self.column(entry, name)
        if column is None:
            return None
        made = coded(column)
        self._columns.put(key, made, made.codes.nbytes + made.values.nbytes)
        return made

    def text_lookup(self, entry: Entry, name: str) -> TextLookup | None:
        """Return the look-up form of a text column if it is cached."""
        return self._lookups.get(_Key(entry.at, "lookup", name))

    def is_due(self, entry: Entry, names: Sequence[str]) -> bool:
        """Count a fetch of some columns; return whether to read all of them as a whole now."""
        if not self._column_bytes_max or entry.row_count > _ROWS_MAX:
            return False
        return self._is_read_due(min([self._uses.add((entry.at, name)) for name in names]))

    def is_lookup_due(self, entry: Entry, name: str) -> bool:
        """Count a look-up in a column; return whether to read it as a whole now."""
        if not self.has_lookups or entry.row_count > _LOOKUP_ROWS_MAX:
            return False
        return self._is_read_due(self._uses.add((entry.at, name, "lookup")))

    def _is_read_due(self, uses: float) -> bool:
        # Repeated rarely: a column that is too large to be cached must not be read at every use.
        return uses % _USES_PER_READ == self._uses_min

    def keep(self, entry: Entry, row_ids: RowIds, columns: Mapping[str, pa.Array]) -> None:
        """Cache whole columns of a dataset version, given by ascending row id."""
        version = entry.at
        if self.row_positions(entry) is None:
            # All queries share it from now on, so it must not change.
            row_ids.setflags(write=False)
            self._columns.put(_Key(version, "rows"), RowPositions(row_ids), row_ids.nbytes)
        for name, column in columns.items():
            if not pa.types.is_nested(column.type) and self.column(entry, name) is None:
                self._columns.put(_Key(version, "values", name), column, column.nbytes)
        _keep_recent(self._columns, version)

    def keep_lookup(self, entry: Entry, name: str, lookup: TextLookup) -> None:
        """Cache the look-up form of a text column."""
        self._lookups.put(_Key(entry.at, "lookup", name), lookup, lookup.nbytes)
        _keep_recent(self._lookups, entry.at)


def _keep_recent(cache: BoundedCache[_V], version: DatasetVersion) -> None:
    """Drop what was made from versions of the same lineage that are no longer used."""

    def group_of(key: Hashable, _: object) -> DatasetVersion | None:
        if isinstance(key, _Key) and key.at.lineage == version.lineage:
            return key.at
        return None

    cache.keep_recent(RECENT_VERSIONS_MAX, group_of)
