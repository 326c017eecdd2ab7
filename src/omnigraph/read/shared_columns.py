"""Id columns that stay in memory between queries, by published version of their dataset.

Nearly every result names nodes, and few columns are asked for as often as `id`. A column becomes
shared when it has been fetched several times in one version; memory is bounded by bytes.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from omnigraph.manifest.rows import Entry
from omnigraph.read.rows import RowIds
from omnigraph.search.cache import BoundedCache, published_version

BYTES_MAX: Final = 512 << 20
FETCHES_MIN: Final = 4
"""Fetches of one column before it is read as a whole."""
_FETCHES_PER_READ: Final = 256
_ROWS_MAX: Final = 8_000_000
_COUNTERS_MAX: Final = 1_024


@dataclass(frozen=True, eq=False)
class SharedColumn:
    """A column by ascending row id."""

    row_ids: RowIds
    values: pa.Array

    @property
    def nbytes(self) -> int:
        """Bytes of both arrays."""
        return int(self.row_ids.nbytes + self.values.nbytes)


class SharedColumns:
    """The id columns of one graph. Safe to share between threads."""

    def __init__(self, *, bytes_max: int = BYTES_MAX) -> None:
        self._kept: BoundedCache[SharedColumn] = BoundedCache(bytes_max)
        self._asked: BoundedCache[int] = BoundedCache(_COUNTERS_MAX)
        self._lock = threading.Lock()

    def get(self, entry: Entry) -> SharedColumn | None:
        """Return the ids of a dataset version if they are in memory."""
        return self._kept.get(published_version(entry))

    def is_due(self, entry: Entry) -> bool:
        """Count a fetch, and say whether the whole column is worth reading now."""
        if entry.row_count > _ROWS_MAX:
            return False
        key = published_version(entry)
        with self._lock:
            asked = (self._asked.get(key) or 0) + 1
            self._asked.put(key, asked, 1)
        return asked % _FETCHES_PER_READ == FETCHES_MIN

    def put(self, entry: Entry, column: SharedColumn) -> None:
        """Keep the ids of a dataset version."""
        self._kept.put(published_version(entry), column, column.nbytes)
