"""What an operation wants to change, before anything is staged.

A mutation folds everything it does into one `TableDelta` per table it writes. The rules check
deltas against the snapshot they were made on; staging turns each into one transaction.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import pyarrow as pa

from omnigraph.dataclass import dataclass


class WriteMode(StrEnum):
    """What happens to rows whose id is stored already."""

    APPEND = "append"
    """They are a conflict."""
    MERGE = "merge"
    """They are replaced as a whole."""
    OVERWRITE = "overwrite"
    """The table becomes exactly the rows of the delta."""


@dataclass(frozen=True)
class TableDelta:
    """The net change of one table: rows to write, which replace stored rows of their ids.

    `rows` has the stored columns in stored order, one row per id: the last one that the operation
    wrote. `positions` says, row by row, where each came from (a statement, a row), or is None.
    `deleted` holds ids of rows to remove; no id is in both. `rows` and `deleted` are empty, not
    None. `ids_are_new` says that the operation made every id itself, so that none can be stored;
    `is_insert` that it has not seen any of them stored.
    """

    table_key: str
    rows: pa.Table
    deleted: pa.Array
    positions: pa.Array | None = None
    ids_are_new: bool = False
    is_insert: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether the table stays as it is."""
        return self.rows.num_rows == 0 and len(self.deleted) == 0

    def position(self, row: int) -> int | None:
        """Return where a written row came from."""
        return None if self.positions is None else self.positions[row].as_py()

    def positions_of(self, start: int, count: int) -> pa.Array | None:
        """Return where some written rows came from."""
        return None if self.positions is None else self.positions.slice(start, count)


@dataclass(frozen=True)
class GraphDelta:
    """The net change of the graph: one delta per table that is written, by table key."""

    tables: Mapping[str, TableDelta]

    @property
    def is_empty(self) -> bool:
        """Whether nothing changes, so that there is nothing to commit."""
        return all(delta.is_empty for delta in self.tables.values())
