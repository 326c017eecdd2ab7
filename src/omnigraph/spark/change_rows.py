"""The rows of the change feed, as tasks make them.

1. A slice is one type in one commit, compared with the commit's first parent. A task reads slices
   in the order of the commits and knows nothing else of the graph.
2. Where a commit only added fragments, all their rows are inserts: they are scanned, several tasks
   share them, and they come in the order in which they are stored. Everywhere else rows are
   compared, and come in the order of their ids, both rows of an update one after the other.
3. Blobs are compared, but read only when they are named.

Spark imports this module in each task, so it imports little beyond storage and types.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np
import orjson
import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from omnigraph.changes.mapped_table import mapped
from omnigraph.changes.table_changes import RowChanges, RowRefs, table_changes
from omnigraph.names import TableKey
from omnigraph.schema.values.to_json import JsonForm, to_json_values
from omnigraph.spark.task_store import opened_version
from omnigraph.spark.types import MOMENT, entity_schema, travelling_column
from omnigraph.store import StoreSettings, open_store
from omnigraph.store.records import DatasetVersion, ScanRequest

if TYPE_CHECKING:
    from omnigraph.schema import EntityType
    from omnigraph.schema.mapping import TypeMapping
    from omnigraph.store.datasets import DatasetHandle, DatasetStore

ROWS_AT_ONCE: Final = 8_192
_BLOB_ROWS_AT_ONCE: Final = 16
"""Blobs may be large, and a batch of them must fit into memory several times."""

INSERT: Final = "insert"
BEFORE_UPDATE: Final = "update_preimage"
AFTER_UPDATE: Final = "update_postimage"
DELETE: Final = "delete"

CAUSE: Final = (
    pa.field("_change_type", pa.utf8(), nullable=False),
    pa.field("_commit_version", pa.int64(), nullable=False),
    pa.field("_commit_timestamp", MOMENT, nullable=False),
    pa.field("_graph_commit_id", pa.utf8(), nullable=False),
)
"""Columns that every row of the feed has."""

_ANY_ENTITY: Final = (
    pa.field("entity_kind", pa.utf8(), nullable=False),
    pa.field("type_name", pa.utf8(), nullable=False),
    pa.field("id", pa.utf8(), nullable=False),
    pa.field("src", pa.utf8()),
    pa.field("dst", pa.utf8()),
    pa.field("properties", pa.utf8(), nullable=False),
)
"""An entity of any type; its properties are JSON in the encoding of an export."""


@dataclass(frozen=True)
class FeedFrame:
    """The columns of a frame of changes: those of one type, or of entities of any type."""

    schema: pa.Schema
    columns: tuple[str, ...] | None = None

    @classmethod
    def of_all(cls) -> FeedFrame:
        """Return the frame of changes of all types."""
        return cls(pa.schema([*_ANY_ENTITY, *CAUSE]))

    @classmethod
    def of_type(cls, entity_type: EntityType, columns: tuple[str, ...]) -> FeedFrame:
        """Return the frame of changes of one type."""
        return cls(pa.schema([*entity_schema(entity_type, columns), *CAUSE]), columns)


@dataclass(frozen=True)
class FeedCommit:
    """The commit that rows come from."""

    commit_id: str
    manifest_version: int
    created_at: int
    """Microseconds."""


@dataclass(frozen=True)
class ChangeSlice:
    """What one commit did to one type; a side that is None does not have the type."""

    commit: FeedCommit
    entity_type: EntityType
    before: DatasetVersion | None
    after: DatasetVersion | None
    rows: int
    """How many rows are looked at: an upper bound of the work."""
    inserted_fragments: tuple[int, ...] | None = None
    """Fragments of `after` whose rows are all inserts; None where rows must be compared."""
    before_view: TypeMapping | None = None
    """How rows of `before` look as `entity_type`; None where they are stored so."""
    after_view: TypeMapping | None = None


class SlicesPartition(InputPartition):
    """What one task reads."""

    def __init__(
        self, settings: StoreSettings, frame: FeedFrame, slices: tuple[ChangeSlice, ...]
    ) -> None:
        super().__init__(None)
        self.settings = settings
        self.frame = frame
        self.slices = slices


def read_slices(partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a partition."""
    if not isinstance(partition, SlicesPartition):
        raise TypeError(f"expected slices of changes, got {type(partition).__name__}")
    if not partition.slices:
        return
    datasets = open_store(partition.settings).datasets
    for one in partition.slices:
        yield from slice_rows(datasets, one, partition.frame)


def slice_rows(
    datasets: DatasetStore, one: ChangeSlice, frame: FeedFrame
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one slice."""
    shape = _Shape(frame, one.entity_type, one.commit)
    after = viewed(opened_version(datasets, one.after), one.after_view)
    if one.inserted_fragments is not None and after is not None:
        yield from _scanned(after, one.inserted_fragments, shape)
        return
    before = viewed(opened_version(datasets, one.before), one.before_view)
    changes = table_changes(
        before,
        after,
        columns=one.entity_type.arrow_schema.names,
        blobs=one.entity_type.blob_properties,
    )
    yield from _compared(before, after, changes, shape)


def viewed(handle: DatasetHandle | None, mapping: TypeMapping | None) -> DatasetHandle | None:
    """Return a table as a mapping shows it; without one as it is stored."""
    return handle if handle is None or mapping is None else mapped(handle, mapping)


def _scanned(
    after: DatasetHandle, fragment_ids: tuple[int, ...], shape: _Shape
) -> Iterator[pa.RecordBatch]:
    if not fragment_ids:
        return
    request = ScanRequest(
        columns=(*shape.plain, *shape.blobs),
        fragment_ids=fragment_ids,
        blobs_as_bytes=bool(shape.blobs),
        batch_rows=shape.rows_at_once,
    )
    for batch in after.scan(request):
        if batch.num_rows:
            yield shape.batch(batch, pa.repeat(INSERT, batch.num_rows))


# -- compared rows ---------------------------------------------------------------------------------


def _compared(
    before: DatasetHandle | None,
    after: DatasetHandle | None,
    changes: RowChanges,
    shape: _Shape,
) -> Iterator[pa.RecordBatch]:
    parts = (
        (changes.deleted, DELETE, True),
        (changes.updated_before, BEFORE_UPDATE, True),
        (changes.updated_after, AFTER_UPDATE, False),
        (changes.inserted, INSERT, False),
    )
    listed = [_listed(rank, *part) for rank, part in enumerate(parts)]
    rows = pa.concat_tables(listed).sort_by([("id", "ascending"), ("rank", "ascending")])
    for start in range(0, rows.num_rows, shape.rows_at_once):
        part = rows.slice(start, shape.rows_at_once).combine_chunks()
        yield _fetched(before, after, part, shape)


def _listed(rank: int, refs: RowRefs, change: str, is_before: bool) -> pa.Table:
    count = len(refs)
    return pa.table(
        {
            "id": refs.ids.cast(pa.utf8()),
            "rank": pa.repeat(pa.scalar(rank, pa.int8()), count),
            "change": pa.repeat(change, count),
            "is_before": pa.repeat(is_before, count),
            "row": pa.array(refs.row_ids, pa.uint64()),
        }
    )


def _fetched(
    before: DatasetHandle | None, after: DatasetHandle | None, rows: pa.Table, shape: _Shape
) -> pa.RecordBatch:
    """Fetch rows of both sides, and put them back into their order."""
    is_before = rows["is_before"].to_numpy()
    fetched, places = [], []
    for handle, side in ((before, np.flatnonzero(is_before)), (after, np.flatnonzero(~is_before))):
        if handle is None or not len(side):
            continue
        taken = rows.take(pa.array(side)).combine_chunks()
        fetched.append(_taken(handle, taken, shape))
        places.append(side)
    order = np.argsort(np.concatenate(places), kind="stable")
    return pa.Table.from_batches(fetched).take(pa.array(order)).combine_chunks().to_batches()[0]


def _taken(handle: DatasetHandle, rows: pa.Table, shape: _Shape) -> pa.RecordBatch:
    row_ids = rows["row"].chunk(0)
    found = handle.take(row_ids, list(shape.plain)).combine_chunks()
    for name in shape.blobs:
        contents = handle.read_blobs(name, row_ids.to_pylist())
        found = found.append_column(name, pa.array(contents, pa.binary()))
    return shape.batch(found.to_batches()[0], rows["change"].chunk(0))


# -- columns ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Shape:
    """Makes rows of a frame out of rows of one type in one commit."""

    frame: FeedFrame
    entity_type: EntityType
    commit: FeedCommit

    @property
    def plain(self) -> tuple[str, ...]:
        """The stored columns to read, but for blobs."""
        wanted = self.frame.columns or tuple(self.entity_type.arrow_schema.names)
        return tuple(name for name in wanted if name not in self.entity_type.blob_properties)

    @property
    def blobs(self) -> tuple[str, ...]:
        """The blobs to read."""
        named = self.frame.columns or ()
        return tuple(name for name in named if name in self.entity_type.blob_properties)

    @property
    def rows_at_once(self) -> int:
        return _BLOB_ROWS_AT_ONCE if self.blobs else ROWS_AT_ONCE

    def batch(self, rows: pa.RecordBatch, change: pa.Array) -> pa.RecordBatch:
        """Return stored rows as a batch that travels."""
        fields = list(self.frame.schema)[: -len(CAUSE)]
        if self.frame.columns is None:
            arrays = _any_entity(rows, self.entity_type)
        else:
            arrays = [travelling_column(rows[field.name], field) for field in fields]
        same = partial(pa.repeat, size=rows.num_rows)
        cause = [
            change,
            same(pa.scalar(self.commit.manifest_version, pa.int64())),
            same(pa.scalar(self.commit.created_at, pa.int64())).view(MOMENT),
            same(self.commit.commit_id),
        ]
        return pa.RecordBatch.from_arrays([*arrays, *cause], schema=self.frame.schema)


def _any_entity(rows: pa.RecordBatch, entity_type: EntityType) -> list[pa.Array]:
    kind, type_name = TableKey(entity_type.table_key).parts
    count = rows.num_rows
    none = pa.nulls(count, pa.utf8())
    is_edge = kind == "edge"
    return [
        pa.repeat(kind, count),
        pa.repeat(type_name, count),
        rows["id"],
        rows["src"] if is_edge else none,
        rows["dst"] if is_edge else none,
        pa.array(_properties(rows, entity_type), pa.utf8()),
    ]


def _properties(rows: pa.RecordBatch, entity_type: EntityType) -> Iterable[str]:
    names = [name for name in entity_type.properties if name not in entity_type.blob_properties]
    columns = [
        to_json_values(rows[name], entity_type.properties[name].prop_type, JsonForm.EXPORT)
        for name in names
    ]
    if not names:
        return ["{}"] * rows.num_rows
    return [
        orjson.dumps(dict(zip(names, values, strict=True))).decode()
        for values in zip(*columns, strict=True)
    ]
