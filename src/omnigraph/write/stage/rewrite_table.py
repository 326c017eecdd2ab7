"""One table on its way from the accepted schema to the desired one.

A rewrite is one new version of the dataset: the same rows with the same ids and the same stable row
ids, under the columns of the desired type. Columns are matched by the number of their property, so
a rename carries its values. Rows are streamed: what is in memory is one batch, and eight bytes per
row for the row ids.

External blobs are carried as the references that they are, never opened.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.manifest import Entry
from omnigraph.schema import EntityType, Property
from omnigraph.schema.values.convert import convert_values
from omnigraph.store.blob_contents import BLOB_BATCH_ROWS, with_blobs
from omnigraph.store.datasets import DatasetHandle, DatasetStore
from omnigraph.store.records import ROW_ID, DatasetVersion, ScanRequest, StagedTransaction
from omnigraph.values import Scalar


@dataclass(frozen=True)
class TableChange:
    """A type that both schemas have, maybe under two names, and its published entry."""

    accepted: EntityType
    desired: EntityType
    entry: Entry

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
    def _stored_names(self) -> dict[int | None, str]:
        return {prop.property_id: name for name, prop in self.accepted.properties.items()}

    def read(self, handle: DatasetHandle, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Stream some columns of the stored rows in their desired form."""
        sources = [self._source(name) for name in columns]
        stored = tuple(dict.fromkeys(s.stored for s in sources if s.stored is not None))
        # Without a stored column Lance returns no row count: `id` always exists.
        for batch in handle.scan(ScanRequest(columns=stored or ("id",))):
            yield pa.record_batch(
                [source.column(batch) for source in sources],
                schema=pa.schema([source.field for source in sources]),
            )

    def stage(self, datasets: DatasetStore, base: DatasetVersion) -> StagedTransaction:
        """Prepare the rewritten version of the table."""
        handle = datasets.open(base.location, branch=base.branch, version=base.version)
        schema = self.desired.arrow_schema
        with_row_ids = schema.append(pa.field(ROW_ID, pa.uint64()))
        rows = pa.RecordBatchReader.from_batches(with_row_ids, self._rows(handle, with_row_ids))
        return datasets.stage_overwrite(base, schema, rows=rows, row_id_column=ROW_ID)

    def _rows(self, handle: DatasetHandle, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        sources = [self._source(name) for name in self.desired.arrow_schema.names]
        stored = tuple(dict.fromkeys(s.stored for s in sources if s.stored is not None))
        blobs = [s.stored for s in sources if s.is_blob and s.stored is not None]
        request = ScanRequest(
            columns=stored, with_row_id=True, batch_rows=BLOB_BATCH_ROWS if blobs else None
        )
        for batch in handle.scan(request):
            for part in with_blobs(handle, batch, blobs) if blobs else [batch]:
                columns = [source.column(part) for source in sources]
                yield pa.record_batch([*columns, part[ROW_ID]], schema=schema)

    def _source(self, name: str) -> _Source:
        prop = self.desired.properties.get(name)
        if prop is None:
            return _Source(self.desired.arrow_schema.field(name), name)
        return _Source(prop.arrow_field, self._stored_names.get(prop.property_id), prop)


@dataclass(frozen=True)
class _Source:
    """Where a desired column comes from: a stored one, or a value for every row."""

    field: pa.Field
    stored: str | None
    prop: Property | None = None

    @property
    def is_blob(self) -> bool:
        return self.prop is not None and self.prop.prop_type.scalar is Scalar.BLOB

    def column(self, batch: pa.RecordBatch) -> pa.Array:
        if self.stored is not None:
            found = batch[self.stored]
            return found if found.type == self.field.type else pc.cast(found, self.field.type)
        if self._fill is None:
            return pa.nulls(batch.num_rows, self.field.type)
        return pa.repeat(self._fill, batch.num_rows)

    @cached_property
    def _fill(self) -> pa.Scalar | None:
        """The default of a required property; None for an optional one."""
        prop = self.prop
        if prop is None or prop.prop_type.nullable or prop.default is None:
            return None
        return convert_values([prop.default], prop.prop_type, prop.name).column[0]
