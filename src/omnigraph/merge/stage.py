"""Locks what a merge does to one table into one staged transaction on the target's lineage.

1. New rows are appended as new fragments, without any join with stored rows.
2. Changed rows are written under the stable row ids that they have in the target; their old
   versions go by exact address. Removed rows go by exact address.
3. All of it is one transaction, so a table is never merged in part.
4. Rows are streamed: memory follows a batch, not the difference.
5. External blobs of rows that are written become bytes of the graph; only objects below an allowed
   base are read, and a row that names another one is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from omnigraph.errors import CorruptError
from omnigraph.manifest.forks import write_base
from omnigraph.merge.workers import KeptRows, RowTarget
from omnigraph.store.blob_contents import with_blobs
from omnigraph.store.records import ROW_ID
from omnigraph.write.commit.committer import TableWrite

if TYPE_CHECKING:
    from omnigraph.changes.table_changes import Numbers, RowRefs
    from omnigraph.manifest.layout import Incarnation
    from omnigraph.merge.workers import MergeWorkers
    from omnigraph.schema import EdgeType, NodeType
    from omnigraph.store.datasets import DatasetHandle, DatasetStore
    from omnigraph.store.records import WrittenFragment
    from omnigraph.write.stage.external_blobs import ExternalBlobs
    from omnigraph.write.stage.stored_rows import Located, StoredRows

_BATCH_BYTES: Final = 16 << 20
_BATCH_ROWS_MAX: Final = 8_192
_BATCH_ROWS_MIN: Final = 64


class MergedRowLostError(CorruptError):
    """A row that a merge should change or remove is not in the target."""

    code = "OG-MERGED-ROW-LOST"
    hint = "keep the files; `omnigraph doctor URI` looks at the whole graph"

    def __init__(self, table_key: str, missing: int) -> None:
        self.table_key = table_key
        self.missing = missing
        super().__init__(
            f"{missing} rows of {table_key} that the merge changes are not in the target;"
            " nothing was merged"
        )


@dataclass(frozen=True)
class StoredPart:
    """Rows to write that are stored in some version."""

    handle: DatasetHandle
    refs: RowRefs

    @property
    def ids(self) -> pa.Array:
        """The ids of the rows."""
        return self.refs.ids

    def batches(self, owner: NodeType | EdgeType) -> Iterator[pa.RecordBatch]:
        """Yield the rows in the form in which they are written."""
        yield from stored_batches(self.handle, self.refs.row_ids, owner)


@dataclass(frozen=True)
class GivenPart:
    """Rows to write that were made here."""

    rows: pa.Table

    @property
    def ids(self) -> pa.Array:
        """The ids of the rows."""
        column = self.rows["id"]
        return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()

    def batches(self, owner: NodeType | EdgeType) -> Iterator[pa.RecordBatch]:
        """Yield the rows in the form in which they are written."""
        yield from self.rows.select(owner.arrow_schema.names).cast(owner.arrow_schema).to_batches()


Part = StoredPart | GivenPart


@dataclass(frozen=True)
class TableWork:
    """Everything that a merge writes to one table of the target."""

    owner: NodeType | EdgeType
    inserted: tuple[Part, ...]
    updated: tuple[Part, ...]
    deleted: pa.Array

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to write."""
        parts = (*self.inserted, *self.updated)
        return not len(self.deleted) and not any(len(part.ids) for part in parts)

    @property
    def counts(self) -> tuple[int, int, int]:
        """How many rows are inserted, updated and deleted."""
        inserted = sum(len(part.ids) for part in self.inserted)
        return inserted, sum(len(part.ids) for part in self.updated), len(self.deleted)


def stage_table(
    work: TableWork,
    stored: StoredRows,
    incarnation: Incarnation,
    datasets: DatasetStore,
    *,
    workers: MergeWorkers,
    operation_id: str,
    external_blobs: ExternalBlobs,
) -> TableWrite:
    """Write the files of a merge into one table, and stage them as one transaction."""
    key = work.owner.table_key
    base = write_base(datasets, incarnation, stored.entry(key), operation_id=operation_id)
    target = RowTarget(base.base, work.owner, external_blobs)
    fragments: list[WrittenFragment] = []
    if any(len(part.ids) for part in work.inserted):
        fragments += workers.write(target, work.inserted)
    updated_ids = _joined([part.ids for part in work.updated])
    located = _located(stored, key, updated_ids)
    if len(updated_ids):
        kept = KeptRows(updated_ids, located.row_ids)
        fragments += workers.write(target, work.updated, kept)
    removed = _located(stored, key, work.deleted)
    addresses = np.concatenate([located.addresses, removed.addresses])
    inserted, _, deleted = work.counts
    row_count = base.entry.row_count + inserted - deleted
    if not len(addresses):
        staged = datasets.stage_append(base.base, fragments=fragments)
    else:
        deletions = datasets.write_deletions(base.base, pa.array(addresses))
        staged = datasets.stage_update(base.base, fragments=fragments, deletions=deletions)
    return TableWrite(key, (staged,), row_count, base)


def stored_batches(
    handle: DatasetHandle, row_ids: Numbers, owner: NodeType | EdgeType
) -> Iterator[pa.RecordBatch]:
    """Fetch whole rows, a bounded number of bytes at once."""
    for some in _chunks(row_ids, _rows_per_batch(handle)):
        yield from stored_rows(handle, some, owner)


def stored_rows(
    handle: DatasetHandle, row_ids: Numbers, owner: NodeType | EdgeType
) -> Iterator[pa.RecordBatch]:
    """Fetch whole rows, blobs with their bytes, in the form in which they are written."""
    names = owner.arrow_schema.names
    found = handle.take(pa.array(row_ids, pa.uint64()), names)
    if not owner.blob_properties:
        yield from found.cast(owner.arrow_schema).to_batches()
        return
    numbered = found.append_column(ROW_ID, pa.array(row_ids, pa.uint64())).combine_chunks()
    for batch in numbered.to_batches():
        for part in with_blobs(handle, batch, owner.blob_properties):
            arrays = [part[name] for name in names]
            yield pa.RecordBatch.from_arrays(arrays, schema=owner.arrow_schema)


def _located(stored: StoredRows, table_key: str, ids: pa.Array) -> Located:
    located = stored.locate(table_key, ids)
    if located.count != len(ids):
        raise MergedRowLostError(table_key, len(ids) - located.count)
    return located


def _joined(columns: Sequence[pa.Array]) -> pa.Array:
    return pa.concat_arrays(columns) if columns else pa.array([], pa.utf8())


def _chunks(numbers: Numbers, size: int) -> Iterator[Numbers]:
    for start in range(0, len(numbers), size):
        yield numbers[start : start + size]


def _rows_per_batch(handle: DatasetHandle) -> int:
    """Return how many rows make a batch of bounded size, judged by what is stored."""
    fragments = handle.fragments()
    rows = sum(fragment.physical_rows for fragment in fragments)
    width = max(1, sum(fragment.data_bytes for fragment in fragments) // max(1, rows))
    return int(np.clip(_BATCH_BYTES // width, _BATCH_ROWS_MIN, _BATCH_ROWS_MAX))
