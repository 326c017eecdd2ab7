"""Rows that this process has written a moment ago, so that they need not be read again.

1. Rows are remembered by the name of their data file, which is written once and never again. They
   are as the file has them: in its order, deleted ones included.
2. Columns are known by name. After a change of the schema a name may stand for another column, so
   the numbers of the columns are kept as well and compared.
3. Only few rows of one write are remembered, within a bound of bytes. Losing them costs time only.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import pyarrow as pa

from omnigraph.cache import BoundedCache
from omnigraph.dataclass import dataclass

ColumnIds: TypeAlias = tuple[tuple[str, int], ...]
"""Name and number of every stored column."""

ROWS_MAX: Final = 1_000
_TABLE_BYTES_MAX: Final = 256 << 10
_MEMORY_MAX_BYTES: Final = 8 << 20
_ENTRY_BYTES: Final = 1_024


@dataclass(frozen=True, eq=False)
class _Written:
    column_ids: ColumnIds
    rows: pa.Table


class WrittenRows:
    """What one store has written. Safe to share between threads."""

    def __init__(self) -> None:
        self._cached: BoundedCache[_Written] = BoundedCache(_MEMORY_MAX_BYTES)

    def remember(self, file: str, column_ids: ColumnIds, rows: pa.Table) -> None:
        """Remember the rows of a file, if they are few.

        A part of a larger table holds all of that in memory, and counts as such.
        """
        size = int(rows.get_total_buffer_size())
        if rows.num_rows <= ROWS_MAX and size <= _TABLE_BYTES_MAX:
            self._cached.put(file, _Written(column_ids, rows), size + _ENTRY_BYTES)

    def of(self, file: str, column_ids: ColumnIds) -> pa.Table | None:
        """Return the rows of a file, if they are remembered."""
        found = self._cached.get(file)
        return None if found is None or found.column_ids != column_ids else found.rows
