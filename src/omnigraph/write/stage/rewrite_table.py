"""One table on its way from the accepted schema to the desired one.

A change of columns is one new version of the dataset: the same rows with the same ids and the same
stable row ids, under the columns of the desired type. Columns are matched by the number of their
property, so a rename carries its values.

| change of a property | what is written |
|---|---|
| dropped, renamed, required or no longer, null in every stored row | nothing: only the version |
| widened, or added with a value for stored rows | files of that column, next to those of the rows |
| dropped for good (`forgets`) | all rows: no file may hold the values any longer |
| under a name that another one had, while a column is written | files of that column |
| a blob, under such a name or of other nullability, while one is written | all rows |

Rows that are written again are streamed: what is in memory is one batch, and eight bytes per row
for the row ids. External blobs are carried as the references that they are, never opened.

A change of columns and new rows are two transactions: Lance has none for both. Stage the rows on
the view of this one (`open_staged`) and let them follow it (`following`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field
from functools import cached_property

import pyarrow as pa

from omnigraph.dataclass import dataclass
from omnigraph.manifest import Entry
from omnigraph.schema import EntityType
from omnigraph.schema.ir.aliases import Aliases
from omnigraph.schema.mapping import ColumnMapping, TypeMapping, map_type
from omnigraph.store.blob_contents import BLOB_BATCH_ROWS, with_blobs
from omnigraph.store.datasets import DatasetHandle, DatasetStore
from omnigraph.store.records import (
    ROW_ID,
    ColumnSource,
    DatasetVersion,
    ScanRequest,
    StagedTransaction,
)
from omnigraph.values import is_blob_field


@dataclass(frozen=True)
class TableChange:
    """A type that both schemas have, maybe under two names, and its published entry.

    `forgets` says that the values of dropped properties must not stay in any file.
    """

    accepted: EntityType
    desired: EntityType
    entry: Entry
    forgets: bool = False
    aliases: Aliases = field(default_factory=Aliases.of)

    @property
    def is_renamed(self) -> bool:
        """Whether the table is published under another key."""
        return self.accepted.table_key != self.desired.table_key

    @property
    def is_rewritten(self) -> bool:
        """Whether the stored columns differ in name, type, nullability or number."""
        stored, wanted = self.accepted.arrow_schema, self.desired.arrow_schema
        return not stored.equals(wanted, check_metadata=True)

    @property
    def is_renamed_only(self) -> bool:
        """Whether the table stays as it is and only its key changes."""
        return self.is_renamed and not self.is_rewritten

    @property
    def is_moved(self) -> bool:
        """Whether the table gets a new entry."""
        return self.is_renamed or self.is_rewritten

    @cached_property
    def mapping(self) -> TypeMapping:
        """The desired columns, each with its source among the stored ones."""
        return map_type(self.accepted, self.desired, self.aliases)

    def read(self, handle: DatasetHandle, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Stream some columns of the stored rows in their desired form."""
        by_name = {column.field.name: column for column in self.mapping.columns}
        sources = [by_name[name] for name in columns]
        # Without a stored column Lance returns no row count: `id` always exists.
        for batch in handle.scan(ScanRequest(columns=_stored(sources) or ("id",))):
            yield pa.record_batch(
                [source.column(batch) for source in sources],
                schema=pa.schema([source.field for source in sources]),
            )

    def stage(self, datasets: DatasetStore, base: DatasetVersion) -> StagedTransaction:
        """Prepare the version of the table with the desired columns."""
        schema = self.desired.arrow_schema
        if not self._writes_all_rows:
            sources = {c.field.name: ColumnSource(c.stored, c.fill) for c in self.mapping.columns}
            return datasets.stage_columns(base, schema, sources)
        handle = datasets.open(base.location, branch=base.branch, version=base.version)
        with_row_ids = schema.append(pa.field(ROW_ID, pa.uint64()))
        rows = pa.RecordBatchReader.from_batches(with_row_ids, self._rows(handle, with_row_ids))
        return datasets.stage_overwrite(base, schema, rows=rows, row_id_column=ROW_ID)

    @property
    def _writes_all_rows(self) -> bool:
        columns = self.mapping.columns
        is_written = any(
            column.fill is not None or self._is_converted(column) for column in columns
        )
        has_other_blobs = any(
            is_blob_field(column.field) and self._is_other_blob(column) for column in columns
        )
        return self.forgets or (is_written and has_other_blobs)

    def _is_other_blob(self, column: ColumnMapping) -> bool:
        """Whether a blob differs in nullability, or has the name that another column had."""
        if column.stored is not None and self._is_nullable(column) != column.field.nullable:
            return True
        return column.field.name in self.accepted.arrow_schema.names and (
            column.field.name != column.stored
        )

    def _is_converted(self, column: ColumnMapping) -> bool:
        if column.stored is None:
            return False
        return bool(self.accepted.arrow_schema.field(column.stored).type != column.field.type)

    def _is_nullable(self, column: ColumnMapping) -> bool:
        return bool(self.accepted.arrow_schema.field(column.stored).nullable)

    def _rows(self, handle: DatasetHandle, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        columns = self.mapping.columns
        blobs = _stored([column for column in columns if is_blob_field(column.field)])
        request = ScanRequest(
            columns=_stored(columns),
            with_row_id=True,
            batch_rows=BLOB_BATCH_ROWS if blobs else None,
        )
        for batch in handle.scan(request):
            for part in with_blobs(handle, batch, blobs) if blobs else [batch]:
                arrays = [column.column(part) for column in columns]
                yield pa.record_batch([*arrays, part[ROW_ID]], schema=schema)


def _stored(columns: Sequence[ColumnMapping]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(c.stored for c in columns if c.stored is not None))
