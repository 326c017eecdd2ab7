"""What an operation wants to change, before anything is staged.

A load or a mutation folds everything it does into one `TableDelta` per table it writes. Validation
judges deltas against the snapshot they were made on; staging turns them into one transaction each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import pyarrow as pa


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
    """The net change of one table.

    `rows` has the stored columns in stored order, one row per id: the last one that the operation
    wrote. `positions` says, row by row, where each came from (a line, a record, a statement), or is
    None. `deleted` holds ids that go; no id is in both. `rows` and `deleted` are empty, not None.

    `records` is what was written before it was folded by id, where that is more than `rows`: the
    columns `id` and the members of keys and unique tuples, with `record_positions`. `ids_are_new`
    says that the operation made every id itself, so that none can be stored or given twice;
    `is_insert` that it has not seen any of them stored.
    `rows` may lie in a file that is mapped into memory: go through it by batches.
    """

    table_key: str
    mode: WriteMode
    rows: pa.Table
    deleted: pa.Array
    positions: pa.Array | None = None
    records: pa.Table | None = None
    record_positions: pa.Array | None = None
    ids_are_new: bool = False
    is_insert: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether the table stays as it is."""
        is_noop = self.rows.num_rows == 0 and len(self.deleted) == 0
        return is_noop and self.mode is not WriteMode.OVERWRITE


@dataclass(frozen=True)
class GraphDelta:
    """The net change of the graph: one delta per table that is written, by table key."""

    tables: Mapping[str, TableDelta]

    @property
    def is_empty(self) -> bool:
        """Whether nothing changes, so that there is nothing to commit."""
        return all(delta.is_empty for delta in self.tables.values())
