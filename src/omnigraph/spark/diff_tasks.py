"""What tasks do to compare two snapshots.

1. The first kind of task reads the candidates of some fragments that differ, as
   `omnigraph.changes.table_changes` defines them: ids and row addresses, nothing else. Every
   candidate goes to the bucket of its id, on whichever side it is.
2. The second kind gets all candidates of a bucket, so it sees both rows of an id or none, and
   compares them with the code that compares whole tables in process.
3. A bucket holds a bounded number of candidates; rows are fetched a bounded number at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.changes.images import row_images
from omnigraph.changes.selection import Op, Selection
from omnigraph.changes.table_changes import (
    Numbers,
    RowRefs,
    compared_changes,
    one_sided,
    sorted_refs,
)
from omnigraph.changes.type_pairs import TypeSides
from omnigraph.names import TableKey
from omnigraph.spark.task_store import opened_version
from omnigraph.spark.types import spark_schema
from omnigraph.store import StoreSettings, open_store
from omnigraph.store.records import ROW_ADDRESS, ROW_ID, ROW_UPDATED, DatasetVersion, ScanRequest
from omnigraph.write.load.check.hashing import HashScheme

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from omnigraph.schema import EntityType
    from omnigraph.store.datasets import DatasetHandle, DatasetStore
    from omnigraph.store.records import FragmentInfo

ROWS_AT_ONCE: Final = 1_024

CANDIDATES: Final = pa.schema(
    [
        pa.field("bucket", pa.int32()),
        pa.field("table", pa.int32()),
        pa.field("is_before", pa.bool_()),
        pa.field("id", pa.utf8()),
        pa.field("row_id", pa.int64()),
        pa.field("address", pa.int64()),
        pa.field("version", pa.int64()),
    ]
)

CHANGES: Final = pa.schema(
    [
        pa.field("entity_kind", pa.utf8(), nullable=False),
        pa.field("type_id", pa.utf8(), nullable=False),
        pa.field("type_name", pa.utf8(), nullable=False),
        pa.field("id", pa.utf8(), nullable=False),
        pa.field("op", pa.utf8(), nullable=False),
        pa.field("published_dataset_version", pa.int64(), nullable=False),
        pa.field("src", pa.utf8()),
        pa.field("dst", pa.utf8()),
        pa.field("before", pa.utf8()),
        pa.field("after", pa.utf8()),
    ]
)
"""A row that differs; `before` and `after` are its images as JSON."""


@dataclass(frozen=True)
class DiffTable:
    """One type on both sides; a side that is None does not have it."""

    entity_type: EntityType
    type_id: str
    before: DatasetVersion | None
    after: DatasetVersion | None
    first_bucket: int
    buckets: int
    sides: TypeSides | None = None
    """The type as both schemas declare it, where they may differ."""

    def view(self, before: DatasetHandle | None) -> DatasetHandle | None:
        """Return the rows of the earlier side as the later side sees them."""
        return before if before is None or self.sides is None else self.sides.view(before)


@dataclass(frozen=True)
class CandidateTask:
    """Fragments of one table whose candidates one task reads."""

    table: int
    before_ids: tuple[int, ...] = ()
    after_ids: tuple[int, ...] = ()
    moved: tuple[tuple[FragmentInfo, FragmentInfo], ...] = ()


@dataclass(frozen=True)
class ReadCandidates:
    """Reads candidates; called on batches of task numbers."""

    settings: StoreSettings
    tables: tuple[DiffTable, ...]
    tasks: tuple[CandidateTask, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the candidates of the tasks whose numbers are given."""
        datasets = open_store(self.settings).datasets
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from self._task(datasets, self.tasks[number])

    def _task(self, datasets: DatasetStore, task: CandidateTask) -> Iterator[pa.RecordBatch]:
        table = self.tables[task.table]
        before, after = (
            opened_version(datasets, table.before),
            opened_version(datasets, table.after),
        )
        for handle, ids, is_before in (
            (before, task.before_ids, True),
            (after, task.after_ids, False),
        ):
            if handle is not None and ids:
                for batch in handle.scan(_places(ids)):
                    yield self._candidates(task.table, batch, is_before=is_before)
        if task.moved and before is not None and after is not None:
            lost, won = one_sided(before, after, task.moved)
            for rows in lost:
                yield from self._all(task.table, _versioned(before, rows), is_before=True)
            for rows in won:
                yield from self._all(task.table, _versioned(after, rows), is_before=False)

    def _all(self, table: int, rows: pa.Table, *, is_before: bool) -> Iterator[pa.RecordBatch]:
        for batch in rows.to_batches():
            yield self._candidates(table, batch, is_before=is_before)

    def _candidates(self, number: int, rows: pa.RecordBatch, *, is_before: bool) -> pa.RecordBatch:
        table, count = self.tables[number], rows.num_rows
        ids = rows["id"].cast(pa.utf8())
        buckets = HashScheme().texts(ids) % np.uint64(table.buckets)
        return pa.RecordBatch.from_arrays(
            [
                pa.array(buckets.astype(np.int32) + np.int32(table.first_bucket)),
                pa.repeat(pa.scalar(number, pa.int32()), count),
                pa.repeat(is_before, count),
                ids,
                rows[ROW_ID].cast(pa.int64()),
                rows[ROW_ADDRESS].cast(pa.int64()),
                rows[ROW_UPDATED].cast(pa.int64()),
            ],
            schema=CANDIDATES,
        )


def _places(fragment_ids: tuple[int, ...]) -> ScanRequest:
    return ScanRequest(
        columns=("id", ROW_UPDATED),
        with_row_id=True,
        with_row_address=True,
        fragment_ids=fragment_ids,
    )


def _versioned(handle: DatasetHandle, rows: pa.Table) -> pa.Table:
    return handle.take_addresses(
        rows[ROW_ADDRESS].combine_chunks(), ["id", ROW_ID, ROW_ADDRESS, ROW_UPDATED]
    )


def candidate_frame(spark: SparkSession, read: ReadCandidates, buckets: int) -> DataFrame:
    """Return candidates as a frame in which each bucket is one partition."""
    count = len(read.tasks)
    numbers = spark.range(0, count, 1, count)
    return numbers.mapInArrow(read, spark_schema(CANDIDATES)).repartitionById(buckets, "bucket")


# -- comparing -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CompareCandidates:
    """Compares all candidates of some buckets."""

    settings: StoreSettings
    tables: tuple[DiffTable, ...]
    selection: Selection

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield what differs."""
        found = [batch for batch in batches if batch.num_rows]
        if not found:
            return
        rows = pa.Table.from_batches(found)
        datasets = open_store(self.settings).datasets
        for number in sorted(pc.unique(rows["table"]).to_pylist()):
            of_table = rows.filter(pc.equal(rows["table"], number))
            yield from self._table(datasets, self.tables[number], of_table)

    def _table(
        self, datasets: DatasetStore, table: DiffTable, rows: pa.Table
    ) -> Iterator[pa.RecordBatch]:
        before, after = (
            opened_version(datasets, table.before),
            opened_version(datasets, table.after),
        )
        entity_type = table.entity_type
        changes = compared_changes(
            table.view(before),
            after,
            refs_of(rows.filter(rows["is_before"])),
            refs_of(rows.filter(pc.invert(rows["is_before"]))),
            columns=entity_type.arrow_schema.names,
            blobs=entity_type.blob_properties,
        )
        known = rows.filter(pc.invert(rows["is_before"]))
        rows_of = _ChangeRows(table, before, after)
        none = RowRefs.none()
        for op, old, new in (
            (Op.INSERT, none, changes.inserted),
            (Op.UPDATE, changes.updated_before, changes.updated_after),
            (Op.DELETE, changes.deleted, none),
        ):
            if self.selection.takes_op(op):
                yield from rows_of(op, old, new, _versions(table, op, old, new, known))


def refs_of(rows: pa.Table) -> RowRefs:
    """Return candidates of one side as rows."""
    places = pa.table(
        {
            "id": rows["id"],
            ROW_ID: rows["row_id"].cast(pa.uint64()),
            ROW_ADDRESS: rows["address"].cast(pa.uint64()),
        }
    )
    return sorted_refs([places])


def _versions(
    table: DiffTable, op: Op, old: RowRefs, new: RowRefs, known: pa.Table
) -> Numbers | list[int]:
    """Return the version that last wrote each row; for deletes, the version that is reported."""
    at = table.after or table.before
    if op is Op.DELETE or table.after is None:
        return [0 if at is None else at.version] * max(len(old), len(new))
    places = pc.index_in(new.ids, value_set=known["id"].combine_chunks())
    versions: Numbers = known["version"].take(places).to_numpy()
    return versions


@dataclass(frozen=True)
class _ChangeRows:
    """Makes the rows of a difference."""

    table: DiffTable
    before: DatasetHandle | None
    after: DatasetHandle | None

    def __call__(
        self, op: Op, old: RowRefs, new: RowRefs, versions: Numbers | list[int]
    ) -> Iterator[pa.RecordBatch]:
        for start in range(0, max(len(old), len(new)), ROWS_AT_ONCE):
            part = slice(start, start + ROWS_AT_ONCE)
            yield self._batch(op, _part(old, part), _part(new, part), versions[part])

    def _batch(
        self, op: Op, old: RowRefs, new: RowRefs, versions: Numbers | list[int]
    ) -> pa.RecordBatch:
        shown = old if op is Op.DELETE else new
        handle = self.before if op is Op.DELETE else self.after
        count = len(shown)
        kind, name = TableKey(self.table.entity_type.table_key).parts
        none = pa.nulls(count, pa.utf8())
        ends = (none, none)
        if kind == "edge" and handle is not None:
            rows = handle.take(pa.array(shown.row_ids, pa.uint64()), ["src", "dst"])
            ends = (rows["src"].combine_chunks(), rows["dst"].combine_chunks())
        return pa.RecordBatch.from_arrays(
            [
                pa.repeat(kind, count),
                pa.repeat(self.table.type_id, count),
                pa.repeat(name, count),
                shown.ids.cast(pa.utf8()),
                pa.repeat(str(op), count),
                pa.array(versions, pa.int64()),
                *ends,
                self._images(self.before, old, count, is_before=True),
                self._images(self.after, new, count, is_before=False),
            ],
            schema=CHANGES,
        )

    def _images(
        self, handle: DatasetHandle | None, refs: RowRefs, count: int, *, is_before: bool
    ) -> pa.Array:
        if handle is None or not len(refs):
            return pa.nulls(count, pa.utf8())
        entity_type, shown = self.table.entity_type, None
        sides = self.table.sides
        if is_before and sides is not None and sides.before is not None:
            entity_type, shown = sides.before, sides.names_before
        images = row_images(handle, refs.row_ids, entity_type, shown)
        return pa.array([orjson.dumps(image).decode() for image in images], pa.utf8())


def _part(refs: RowRefs, part: slice) -> RowRefs:
    return RowRefs(refs.ids[part], refs.row_ids[part], refs.addresses[part])
