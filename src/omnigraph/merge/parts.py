"""The rows that a merge reads and writes: versions of a table, parts to write, and their target."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.changes.table_changes import Numbers, RowRefs
from omnigraph.schema import EntityType
from omnigraph.store.blob_contents import with_blobs
from omnigraph.store.datasets import DatasetHandle
from omnigraph.store.records import ROW_ID, DatasetVersion
from omnigraph.write.stage.external_blobs import ExternalBlobs

_BATCH_BYTES: Final = 16 << 20
_BATCH_ROWS_MAX: Final = 8_192
_BATCH_ROWS_MIN: Final = 64


@dataclass(frozen=True)
class Handles:
    """The three versions of one table, as the merged schema sees them.

    A side that is None does not have it. `new_source` and `new_target` are the same versions for
    rows that the side has inserted: a property that it does not know has the default there, not
    what the rows of the base were filled with.
    """

    base: DatasetHandle | None
    source: DatasetHandle | None
    target: DatasetHandle | None
    new_source: DatasetHandle | None
    new_target: DatasetHandle | None


@dataclass(frozen=True)
class StoredPart:
    """Rows to write that are stored in some version; columns of `nulled` become null."""

    handle: DatasetHandle
    refs: RowRefs
    nulled: tuple[str, ...] = ()

    @property
    def ids(self) -> pa.Array:
        """The ids of the rows."""
        return self.refs.ids

    def batches(self, entity_type: EntityType) -> Iterator[pa.RecordBatch]:
        """Yield the rows in the form in which they are written."""
        yield from stored_batches(self.handle, self.refs.row_ids, entity_type, self.nulled)


@dataclass(frozen=True)
class GivenPart:
    """Rows to write that the merge has made."""

    rows: pa.Table

    @property
    def ids(self) -> pa.Array:
        """The ids of the rows."""
        column = self.rows["id"]
        return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()

    def batches(self, entity_type: EntityType) -> Iterator[pa.RecordBatch]:
        """Yield the rows in the form in which they are written."""
        yield from (
            self.rows.select(entity_type.arrow_schema.names)
            .cast(entity_type.arrow_schema)
            .to_batches()
        )


Part = StoredPart | GivenPart


@dataclass(frozen=True)
class TableWork:
    """Everything that a merge writes to one table of the target."""

    entity_type: EntityType
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


def no_work(entity_type: EntityType) -> TableWork:
    """Return the work of a table whose rows all stay."""
    return TableWork(entity_type, (), (), pa.array([], pa.utf8()))


@dataclass(frozen=True)
class RewrittenRows:
    """Ids, and the stable row ids under which their rows are written."""

    ids: pa.Array
    row_ids: Numbers

    def row_ids_of(self, ids: pa.Array) -> Numbers:
        """Return the stable row ids of some of the ids."""
        found: Numbers = self.row_ids[pc.index_in(ids, value_set=self.ids).to_numpy()]
        return found


@dataclass(frozen=True)
class RowTarget:
    """Where merged rows are written: the base version, its type, and access to external blobs."""

    base: DatasetVersion
    entity_type: EntityType
    external_blobs: ExternalBlobs


def stored_batches(
    handle: DatasetHandle, row_ids: Numbers, entity_type: EntityType, nulled: Sequence[str] = ()
) -> Iterator[pa.RecordBatch]:
    """Fetch whole rows in batches of bounded size; columns of `nulled` become null."""
    for some in _chunks(row_ids, _rows_per_batch(handle)):
        for batch in stored_rows(handle, some, entity_type):
            yield _nulled(batch, nulled)


def _nulled(batch: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
    for name in names:
        place = batch.schema.get_field_index(name)
        nulls = pa.nulls(batch.num_rows, batch.schema.field(name).type)
        batch = batch.set_column(place, batch.schema.field(name), nulls)
    return batch


def stored_rows(
    handle: DatasetHandle, row_ids: Numbers, entity_type: EntityType
) -> Iterator[pa.RecordBatch]:
    """Fetch whole rows, blobs with their bytes, in the form in which they are written."""
    names = entity_type.arrow_schema.names
    found = handle.take(pa.array(row_ids, pa.uint64()), names)
    if not entity_type.blob_properties:
        yield from found.cast(entity_type.arrow_schema).to_batches()
        return
    numbered = found.append_column(ROW_ID, pa.array(row_ids, pa.uint64())).combine_chunks()
    for batch in numbered.to_batches():
        for part in with_blobs(handle, batch, entity_type.blob_properties):
            arrays = [part[name] for name in names]
            yield pa.RecordBatch.from_arrays(arrays, schema=entity_type.arrow_schema)


def _chunks(numbers: Numbers, size: int) -> Iterator[Numbers]:
    for start in range(0, len(numbers), size):
        yield numbers[start : start + size]


def _rows_per_batch(handle: DatasetHandle) -> int:
    """Return how many rows make a batch of bounded size, from the size of stored rows."""
    fragments = handle.fragments()
    rows = sum(fragment.physical_rows for fragment in fragments)
    width = max(1, sum(fragment.data_bytes for fragment in fragments) // max(1, rows))
    return int(np.clip(_BATCH_BYTES // width, _BATCH_ROWS_MIN, _BATCH_ROWS_MAX))
